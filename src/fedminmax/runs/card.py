"""model_card.md: what a trained model is, for which groups it was measured, and its limits.

The card follows Mitchell et al.: Model cards for model reporting, FAT* 2019. Its sections with
figures by group cover the test rows, the change from the baseline, and personal models.
"""

from collections.abc import Sequence
from pathlib import Path

from fedminmax.config.sections import ReportSection
from fedminmax.core.files import write_text
from fedminmax.core.iterates import Iterate
from fedminmax.core.text import counted, duration_text, markdown_table, markdown_text
from fedminmax.data.tables.census import CensusFile
from fedminmax.exports.saved_model import SavedModel
from fedminmax.findings.records import ChangeOfRun, Measured, Results
from fedminmax.methods.card import MethodCard
from fedminmax.metrics.intervals import MIN_ROWS
from fedminmax.network.wire.plan import masked_words
from fedminmax.runs.advice_text import after_training
from fedminmax.runs.convergence import no_gain_yet
from fedminmax.runs.layout import CARD_FILE
from fedminmax.runs.measure import (
    interval_text,
    merged_groups_text,
    metric_cells,
    small_groups_text,
)
from fedminmax.runs.privacy import privacy_lines
from fedminmax.runs.remarks import LOSS_NAMES, certificate_text, validation_text, verdict_of

NOT_STATED = "not stated; set it in the section [report] of the configuration"
RISK_NAMES = {"classification": "Brier risk", "regression": "squared error"}
RISK_MEANINGS = {
    "classification": "the sum over classes of the squared difference between probability and "
    "outcome, 0 to 2, lower is better",
    "regression": "the mean squared difference in the target's own unit, lower is better",
}


def scores_section(results: Results) -> str:
    """Return the section with every metric by group."""
    test = results.test
    if not test.rows:
        return "## Test results\n\nThere were no test rows: performance on new rows is unknown."
    worst = results.risk.worst_group
    named = "" if worst is None else f"; in risk it is {markdown_text(worst)}"
    return (
        f"## Test results\n\nOn {counted(test.rows, 'row')} not used in training. In "
        f"parentheses: {_intervals(test)}. A star marks the worst group of a column{named}. The "
        "gap is between the highest and the lowest group. Groups with fewer than "
        f"{MIN_ROWS} test rows, or too few training rows, count for neither and are listed "
        f"last.\n\n{_table(results, test)}"
        f"{_small_groups(results)}{_merged_groups(results)}"
    )


def change_section(results: Results) -> str:
    """Return the section with the change in risk from the baseline, if there is one."""
    section = results.change
    if section is None:
        return ""
    change, risk = section.risk, results.risk
    lines = [
        [name, f"{own.rows:,}", interval_text(own, like=risk.overall)]
        for name, own in zip(results.groups, change.by_group, strict=True)
        if own.has_enough_rows
    ]
    everyone = ("all", f"{results.test.rows:,}", change.overall)
    for name, count, own in (everyone, ("worst group to worst group", "", change.worst)):
        lines.append([name, count, interval_text(own, like=risk.overall)])
    baseline = section.baseline
    doubt = no_gain_yet(
        (results.method.name, results.converged), (baseline.name, baseline.converged)
    )
    return (
        f"## Change against the baseline\n\nRisk of this model minus the risk of the baseline "
        f"({baseline.name}, {counted(baseline.rounds, 'round')}, in the folder `baseline`) on the "
        f"same rows: {doubt or 'below 0 is a gain'}. In parentheses: "
        f"{_intervals(section)} of the differences row by row; one that excludes 0 is more "
        "than noise in these test rows.\n\n"
        f"{markdown_table(['group', 'rows', 'change in risk'], lines)}{_small_groups(results)}"
    )


def personal_section(results: Results) -> str:
    """Return the section with the metrics of the sites' own models, if there are any."""
    own = results.personal
    if own is None or not own.rows:
        return ""
    return (
        "## Personal models\n\nEach site also keeps its own model, which is not in this "
        f"folder. Each is measured on its site's test rows, {own.rows:,} in total; intervals and "
        f"stars as above.\n\n{_table(results, own)}"
    )


def _table(results: Results, test: Measured) -> str:
    return markdown_table(*metric_cells(results, test))


def _small_groups(results: Results) -> str:
    text = small_groups_text(list(map(markdown_text, results.groups)), results.test)
    return f"\n\n{text}" if text else ""


def _merged_groups(results: Results) -> str:
    text = merged_groups_text(results)
    return f"\n\n{markdown_text(text)}" if text else ""


def _intervals(made: Measured | ChangeOfRun) -> str:
    return f"{100 * made.confidence:g} % intervals"


def write_card(
    folder: Path,
    saved: SavedModel,
    results: Results,
    *,
    census: CensusFile,
    card: MethodCard,
    section: ReportSection,
) -> None:
    """Write the card of a model trained by this method; ``section`` states its intended use."""
    sections = [
        _headline(saved, results, card, section),
        _use(section, results),
        _data(saved, census),
        scores_section(results),
        change_section(results),
        personal_section(results),
        _training(saved, results, card),
        _privacy(results),
        _limits(saved, results),
        _remarks(results),
    ]
    write_text(folder / CARD_FILE, "\n\n".join(part for part in sections if part) + "\n")


def _headline(saved: SavedModel, results: Results, card: MethodCard, section: ReportSection) -> str:
    target, task = markdown_text(saved.encoding.schema.target.column), results.task
    model = f"{saved.kind} model"
    if saved.hidden:
        model += f" with hidden layers {list(saved.hidden)}"
    if saved.members > 1:
        model = f"mixture of {saved.members} models, each a {model}"
    loss = _loss_name(saved, results)
    title = f"Model of '{target}'"
    goal = ""
    if card.minimax_over_groups:
        goal = f"Its goal is to be minimax in {loss} over these groups. "
    return (
        f"# {_one_line(section.title) if section.title else title}\n\n"
        f"A {model} that predicts '{target}' from "
        f"{counted(len(saved.encoding.features), 'column')}, trained "
        f"by {results.method.name}, which minimises: {card.optimises}, in {loss}. {goal}"
        f"Results are {RISK_NAMES[task]} ({RISK_MEANINGS[task]}). Nothing is claimed for other "
        "groups or other measures."
    )


def _loss_name(saved: SavedModel, results: Results) -> str:
    if saved.loss in ("brier", "squared_error"):
        return RISK_NAMES[results.task]
    return LOSS_NAMES[saved.loss]


def _use(section: ReportSection, results: Results) -> str:
    stated = {"Intended use": section.intended_use, "Not for": section.not_for}
    lines = [
        f"- {name}: {_one_line(text) if text else NOT_STATED}" for name, text in stated.items()
    ]
    lines.append(f"- Trained: {results.finished}")
    return "\n".join(["## What it is for\n", *lines])


def _one_line(text: str) -> str:
    return markdown_text(" ".join(text.split()))


def _data(saved: SavedModel, census: CensusFile) -> str:
    protected = " x ".join(markdown_text(entry.column) for entry in saved.encoding.schema.protected)
    sees = "sees these columns"
    if not saved.encoding.schema.protected_as_features:
        sees = "does not see these columns themselves, but other columns may tell them"
    others = census.other_tests.values()
    lines = [
        [
            group,
            f"{_column(census.train, number):,}",
            f"{_column([*census.test, *others], number):,}",
            f"{sum(line[number] > 0 for line in census.train)} of {len(census.sites)}",
        ]
        for number, group in enumerate(saved.groups)
    ]
    table = markdown_table(["group", "training rows", "test rows", "sites that have it"], lines)
    return (
        f"## Groups and rows\n\nGroups are the values of {protected} that occur in training; the "
        f"model {sees}.\n\n{table}"
    )


def _training(saved: SavedModel, results: Results, card: MethodCard) -> str:
    method = results.method
    proved = certificate_text(results)
    proof = f"- {markdown_text(proved)}\n" if proved else ""
    options = ", ".join(f"{name} = {value}" for name, value in method.options.items())
    validation = f"- {markdown_text(validation_text(results))}\n" if results.validation else ""
    return (
        "## Training\n\n"
        f"- method: {method.name} ({method.key}; {options or 'no options'})\n"
        f"- {counted(method.rounds, 'round')}, share of sites in each {method.participation:g}, "
        f"{results.gradient_evaluations:,} gradient evaluations, "
        f"{duration_text(results.seconds)}\n"
        f"- loss: {saved.loss}; answer: {_answer(saved)}\n"
        f"- {verdict_of(results)}\n"
        f"{proof}"
        f"{validation}"
        + "".join(f"- {markdown_text(paragraph)}\n" for paragraph in after_training(results))
        + f"- seed: {results.seed}\n"
        f"- {_seen_by_the_server(results, card)}"
    )


def _answer(saved: SavedModel) -> str:
    """Describe which of the rounds' models is the answer; some methods choose it themselves."""
    if saved.iterate not in [which.value for which in Iterate]:
        return f"{saved.iterate} among the rounds' models"
    return f"{saved.iterate.replace('_', ' ')} of the rounds' models"


def _seen_by_the_server(results: Results, card: MethodCard) -> str:
    if results.sites is not None and results.secure_aggregation is not None:
        return (
            f"the rows stayed at {counted(len(results.sites), 'site')}; their sums were masked: "
            f"{masked_words(results.secure_aggregation)}, for the encoding, the rounds and the "
            "test results"
        )
    if results.sites is not None:
        return (
            f"the rows stayed at {counted(len(results.sites), 'site')}; the server saw each "
            "site's individual replies, and sums and counts for the encoding and the test results"
        )
    return (
        f"what a server would see of each site: {card.reveals}, and sums and counts for the "
        "encoding; in this run one process read all files"
    )


def _privacy(results: Results) -> str:
    words = privacy_lines(results)
    return (
        "\n".join(["## Privacy\n", *(f"- {markdown_text(line)}" for line in words)])
        if words
        else ""
    )


def _limits(saved: SavedModel, results: Results) -> str:
    return (
        "## What it is not meant for\n\n"
        "- Decisions about people without a person who is accountable for them. Training "
        f"considered {_loss_name(saved, results)} by group and nothing else: selection rates and "
        "error rates may still differ between groups.\n"
        "- Groups, places or times that the training rows do not represent. A group that the "
        "columns above do not identify may be worse off than any that they do.\n"
        "- Conclusions about groups with few test rows: look at the intervals, and remember that "
        "the worst of many groups is partly so by chance.\n"
        "- Causal claims: the model describes the data, including measurement errors and past "
        "decisions."
    )


def _remarks(results: Results) -> str:
    remarks = [*results.warnings, *results.notes]
    lines = "\n".join(f"- {markdown_text(line)}" for line in remarks)
    return f"## Remarks on the data\n\n{lines}" if remarks else ""


def _column(table: Sequence[Sequence[int]], number: int) -> int:
    return sum(line[number] for line in table)
