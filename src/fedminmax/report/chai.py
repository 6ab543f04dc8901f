"""The Applied Model Card of the Coalition for Health AI, as XML of its schema v0.2.

The schema is at https://mc.chai.org/v0.2/schema.xsd. Every element that it requires is there: what
the run knows, or an open question.
"""

import json
from collections.abc import Sequence
from xml.etree import ElementTree

from fedminmax.findings.records import RISK
from fedminmax.findings.text import interval_name, risk_name
from fedminmax.metrics.row_scores import FALSE_ALARMS, MISSED, SELECTED
from fedminmax.report.documents import NO_CLAIM, Known, open_question

NAMESPACE = "https://mc.chai.org/v0.2/schema.xsd"
Content = str | Sequence[tuple[str, "Content"]]
USEFUL = ("auroc", "accuracy", RISK, "absolute_error")
FAIR = (MISSED, FALSE_ALARMS, SELECTED)
SAFE = ("calibration", "overconfidence", "mean_error")


def chai_card(known: Known) -> str:
    """Return the card."""
    root = ElementTree.Element("AppliedModelCard", {"xmlns": NAMESPACE})
    _add(root, _content(known))
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<!-- {NO_CLAIM} -->\n{text}\n'


def _add(parent: ElementTree.Element, content: Content) -> None:
    if isinstance(content, str):
        parent.text = content
        return
    for name, inner in content:
        _add(ElementTree.SubElement(parent, name), inner)


def _content(known: Known) -> Content:
    results, stated = known.results, known.stated
    model = f"{results.model.kind} model for {results.task}, trained by {results.method.name}"
    limits = " ".join(
        text for text in (known.not_assessed, known.run.findings.could_be_better) if text
    )
    classes = f"probabilities of {', '.join(results.classes)}" if results.classes else "a quantity"
    return (
        (
            "BasicInfo",
            (
                ("ModelName", known.title),
                ("ModelDeveloper", open_question("who developed the model?")),
                ("DeveloperContact", open_question("whom can users ask?")),
            ),
        ),
        (
            "ReleaseInfo",
            (
                ("ReleaseStage", open_question("is the model released, and for what?")),
                ("ReleaseDate", results.finished),
                ("ReleaseVersion", known.version),
                ("GlobalAvailability", open_question("where is the model available?")),
            ),
        ),
        (
            "ModelSummary",
            (
                ("Summary", f"Predicts '{results.target}'. {known.verdict}".strip()),
                ("Keywords", tuple(("Keyword", own) for own in (results.task, *known.attributes))),
            ),
        ),
        (
            "UsesAndDirections",
            (
                (
                    "IntendedUseAndWorkflow",
                    stated.intended_use or open_question("what is it for, and where in the work?"),
                ),
                ("PrimaryIntendedUsers", open_question("who uses it?")),
                ("HowToUse", open_question("how is a prediction used, and who decides?")),
                ("TargetedPatientPopulation", open_question("for which patients is it?")),
                (
                    "CautionedOutOfScopeSettings",
                    stated.not_for or open_question("for what must it not be used?"),
                ),
            ),
        ),
        (
            "Warnings",
            (
                (
                    "KnownRisksAndLimitations",
                    limits or open_question("which risks and limits are known?"),
                ),
                (
                    "KnownBiasesOrEthicalConsiderations",
                    known.verdict or open_question("which groups does the model serve worse?"),
                ),
                ("ClinicalRiskLevel", open_question("which clinical risk has a wrong prediction?")),
            ),
        ),
        ("TrustIngredients", _trust(known, model, classes)),
        ("KeyMetrics", _metrics(known)),
        (
            "Resources",
            (
                ("PeerReviewedPublications", open_question("is there a publication?")),
                (
                    "PatientConsentOrDisclosure",
                    open_question("do patients consent, and are they told?"),
                ),
            ),
        ),
        ("Bibliography", "Mitchell et al.: Model cards for model reporting, FAT* 2019."),
    )


def _trust(known: Known, model: str, classes: str) -> Content:
    results = known.results
    facts = (
        ("OutcomesAndOutputs", f"{results.target}: {classes}"),
        ("ModelType", model),
        ("InputDataSource", open_question("from which systems do the inputs come?")),
        (
            "OutputAndInputDataTypes",
            f"Table columns: {known.features}"
            if known.features
            else open_question("which columns does the model read?"),
        ),
        (
            "DevelopmentDataCharacterization",
            (
                f"Groups by {', '.join(known.attributes) or 'columns that are not recorded'}: "
                f"{', '.join(results.groups)}. Test records by group: {known.counts}"
            ),
        ),
        (
            "BiasMitigationApproaches",
            known.objective or open_question("what was done against bias?"),
        ),
        ("OngoingMaintenance", open_question("who measures the model again, and when?")),
    )
    return (
        ("AISystemFacts", facts),
        (
            "TransparencyInformation",
            (
                ("FundingSource", open_question("who paid for the development?")),
                ("StakeholdersConsulted", open_question("who was consulted?")),
            ),
        ),
    )


def _metrics(known: Known) -> Content:
    return (
        ("UsefulnessUsabilityEfficacy", _metric(known, "How well it predicts", USEFUL)),
        ("FairnessEquity", _metric(known, "How it serves each group", FAIR, fairness=True)),
        ("SafetyReliability", _metric(known, "Whether probabilities can be relied on", SAFE)),
    )


def _metric(known: Known, goal: str, names: Sequence[str], *, fairness: bool = False) -> Content:
    results = known.results
    found = [
        (f"{title}, {group}", value)
        for title, lines in known.measures(names)
        for group, value in lines
    ]
    if fairness:
        found += known.measures((RISK,))[0][1] if not found else []
        found += [(f"{name}, difference", value) for name, value, _ in known.parity()]
        found += [(f"{name}, ratio", value) for name, _, value in known.parity()]
    results_of_metric = tuple(
        ("MetricResult", (("Label", label), ("ValueJson", json.dumps(value))))
        for label, value in found
    ) or (("MetricResult", (("Label", "not measured"), ("ValueJson", "null"))),)
    interpretation = (
        known.verdict
        if fairness and known.verdict
        else open_question("what do these values mean for patients?")
    )
    return (
        ("MetricGoal", f"{goal}; risk is the {risk_name(results)}"),
        ("Results", results_of_metric),
        ("Interpretation", interpretation),
        ("TestType", "Internal: records of the participating sites"),
        (
            "TestingDataDescription",
            f"Test records by group: {known.counts}. {known.not_assessed}".strip(),
        ),
        (
            "ValidationProcessAndJustification",
            (
                f"In parentheses: {interval_name(results.test)}. Groups with fewer than "
                f"{results.test.min_rows} records are not compared."
            ),
        ),
    )
