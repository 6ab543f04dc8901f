"""One page about a run for a board: plain words, few numbers, and what is not known.

Printed, it is one sheet, A4 or Letter, whatever the names in the data: long texts are cut, and the
report has them in full.
"""

from fedminmax.core.text import counted
from fedminmax.findings.privacy import NO_GUARANTEE, with_aggregation
from fedminmax.findings.records import Results
from fedminmax.findings.text import (
    NOT_STATED,
    capitalised,
    interval_name,
    named,
)
from fedminmax.metrics.intervals import MIN_ROWS
from fedminmax.report.page import GENERATOR, about, page_template
from fedminmax.report.questions import BETTER, could_be_better
from fedminmax.report.read_run import Run
from fedminmax.report.style import short

# In characters; a sheet has room for about 4,000 in all.
LONG, MEDIUM = 560, 300
MAX_NAME = 60


def render_summary(run: Run, version: str) -> str:
    """Return the page as HTML."""
    return page_template("summary.html").render(
        title=short(about(run).title, 120),
        headline=run.findings.headline,
        reason=short(run.findings.verdict.reason, LONG + MEDIUM) if run.findings.verdict else "",
        parts=_parts(run),
        facts=run.findings.facts,
        baseline=run.baseline.results.method.name if run.baseline else None,
        method=run.label,
        finished=run.chosen.results.finished,
        generator=GENERATOR,
        version=version,
    )


def _parts(run: Run) -> dict[str, list[str]]:
    """Return the paragraphs by their headings."""
    stated, results = dict(about(run).facts), run.chosen.results
    trained = [short(stated[name], MEDIUM) for name in ("What is predicted", "On which records")]
    not_stated = f"{capitalised(NOT_STATED)}."
    uses = " ".join(
        f"{name}: {'not stated.' if stated[name] == not_stated else stated[name]}"
        for name in ("Intended use", "Not for")
    )
    better = could_be_better(run)
    # Without a certificate the reason is part of the answer.
    reason = "" if results.proof is not None else f" {better.reasons[0]}"
    return {
        "What was trained": [" ".join(trained), short(uses, MEDIUM)],
        BETTER: [short(f"{better.short}{reason}", LONG)],
        "What is not known": _unknown(run),
        "Privacy": [short(_privacy(results), LONG)],
    }


def _unknown(run: Run) -> list[str]:
    results = run.chosen.results
    small = [short(name, MAX_NAME) for name in results.test.small_groups(results.groups)]
    texts = []
    if small:
        groups = counted(len(small), "group has", "groups have")
        texts.append(
            f"How the model serves {named(small)}: {groups} under {MIN_ROWS} test records, or too "
            "few training records."
        )
    if not (results.converged or results.is_audit):
        texts.append(short(run.findings.model.convergence, MEDIUM))
    if run.baseline is None:
        texts.append("Whether a standard model would be better or worse: none was trained.")
    texts.append(
        f"How it does with other training records: the {interval_name(results.test)}s are about "
        "other test records of the same groups. Nothing is said of groups that were not named, of "
        "other measures, or of how predictions are used."
    )
    return texts


def _privacy(results: Results) -> str:
    texts = ["One process read all sites' files; in a federation, sites would send sums."]
    if results.sites is not None:
        texts = ["No record left its site; sites sent sums over their records."]
        texts.append(
            "The server saw the sums of each site."
            if results.secure_aggregation is None
            else f"Secure aggregation: {with_aggregation(results.secure_aggregation)}."
        )
    privacy = results.privacy
    if privacy is None:
        texts.append(NO_GUARANTEE)
    else:
        unit = "one training record" if privacy.unit == "row" else "all that one site has"
        texts.append(
            f"What the model reveals of {unit} is bounded: differential privacy with epsilon "
            f"{privacy.epsilon:g} and delta {privacy.delta:g}. Test results and counts are not "
            "covered."
        )
    return " ".join(texts)
