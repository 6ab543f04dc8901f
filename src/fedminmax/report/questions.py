"""Three questions of a reader: could it be better, what would help, which groups are too small?

Each has a short answer, and reasons. Where nothing is known, the answer says so and why.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fedminmax.advice.advise import advise_census
from fedminmax.core.convergence import BY_VALIDATION
from fedminmax.core.text import counted
from fedminmax.findings.advice import remedies
from fedminmax.findings.changes import worst_of
from fedminmax.findings.own_risks import own_risks_table
from fedminmax.findings.tables import Table
from fedminmax.findings.text import decimals_of, estimate, interval_name, named, number, risk_name
from fedminmax.findings.training import ABOUT_CERTIFICATES, HARDLY, why_not_certified
from fedminmax.findings.verdict import merged_groups_text
from fedminmax.metrics.intervals import MIN_ROWS
from fedminmax.report.read_run import Run
from fedminmax.runs.folder import CENSUS_FILE

BETTER = "Could any model of this kind do better?"
HELP = "What would help?"
SMALL = "Which groups are too small to say anything about?"
# A group with less weight had no influence on the model.
NO_WEIGHT = 0.001
# Losses that are also the risk on test records, so that both can be compared.
SAME_ON_TEST_RECORDS = ("brier", "squared_error")
MAX_SUGGESTIONS = 8


@dataclass(frozen=True)
class Answer:
    """A short answer, what it rests on, and numbers if there are any."""

    question: str
    short: str
    reasons: tuple[str, ...] = ()
    table: Table | None = None


def could_be_better(run: Run) -> Answer:
    """Answer with the certificate, in words; without one, say why there is none."""
    results, found = run.chosen.results, run.findings
    certificate = found.model.certificate or why_not_certified(results)
    is_of_groups = results.proof is not None and results.proof.is_of_groups
    about = (ABOUT_CERTIFICATES,) if is_of_groups else ()
    reasons = (certificate, *about, found.model.convergence)
    return Answer(BETTER, found.could_be_better, reasons, own_risks_table(results))


def what_would_help(run: Run) -> Answer:
    """Answer with what the results suggest, then with what the counts of records suggest."""
    if run.chosen.results.is_audit:
        text = "Training with these groups in mind: fedminmax train, then audit both models."
        return Answer(HELP, text)
    suggestions = [*_from_results(run), *_from_counts(run)]
    if not suggestions:
        short = (
            "Nothing stands out: training has converged, and every group has enough records and "
            "more than one site."
        )
        return Answer(HELP, short)
    if len(suggestions) > MAX_SUGGESTIONS:
        more = f"{len(suggestions) - MAX_SUGGESTIONS:,} more"
        rest = f"{more}: fedminmax advise {run.chosen.folder / CENSUS_FILE}"
        suggestions = [*suggestions[:MAX_SUGGESTIONS], rest]
    return Answer(HELP, "The most important first.", tuple(suggestions))


def _from_results(run: Run) -> Iterator[str]:
    results = run.chosen.results
    convergence = results.convergence
    if convergence and not (convergence.converged or convergence.reason == BY_VALIDATION):
        yield f"More rounds: {run.findings.model.convergence}"
    worst = worst_of(results)
    if worst is None:
        return
    name, measured = worst
    place = results.groups.index(name)
    records = counted(sum(line[place] for line in run.census.train), "training record")
    trained = run.chosen.rounds[-1].risks[place]
    other = 'such as kind = "mlp" in [model]'
    if results.model.hidden:
        other = "such as a larger one"
    other = f"Other features, or another kind of model, {other}"
    comparable = results.loss in SAME_ON_TEST_RECORDS and trained is not None
    if comparable and measured.low is not None and (trained or 0.0) < measured.low:
        decimals = decimals_of(results)
        yield (
            f"More records of “{name}”, which is worst off: on its {records} the model's "
            f"{risk_name(results)} is {number(trained, decimals)}, on test records "
            f"{estimate(measured, decimals)}. What it learned from these records does not hold for "
            "others of the group."
        )
    elif comparable:
        yield (
            f"{other}: for “{name}”, which is worst off, the model is no better on its {records} "
            "than on test records, so more records of the same kind would hardly help."
        )
    elif results.proof is not None and results.proof.gap <= HARDLY:
        kind, limit = results.model.kind, results.proof.limit
        lower = "lower" if limit is None else "clearly lower"
        yield (
            f"{other}: no {kind} model on these features has a {lower} highest risk in training."
            f"{_not_protected(run, name)}"
        )


def _not_protected(run: Run, name: str) -> str:
    """Say for which groups the model was trained, if not for the one that is worst off."""
    last, groups = run.chosen.rounds[-1], run.chosen.results.groups
    if last.weights_over != "groups" or len(last.weights) != len(groups):
        return ""
    weights = dict(zip(groups, last.weights, strict=True))
    if weights[name] >= NO_WEIGHT:
        return ""
    most = sorted((own for own in groups if weights[own] >= NO_WEIGHT), key=lambda g: -weights[g])
    return (
        f" “{name}”, which is worst off on test records, had no weight in training, which was for "
        f"{named(most[:3])}: another model may serve it better."
    )


def _from_counts(run: Run) -> list[str]:
    """Return what the adviser says of the records by site and group, and of the method."""
    results = run.chosen.results
    section = run.settings.get("groups")
    size = section.get("minimum_size") if isinstance(section, Mapping) else None
    least = size if isinstance(size, int) else 0
    return remedies(advise_census(run.census, results.loss, results.method.key, least))


def too_small(run: Run) -> Answer:
    """Answer with the groups that have too few test or training records, apart from the others."""
    results = run.chosen.results
    small = list(results.test.small_groups(results.groups))
    merged = merged_groups_text(results)
    reasons = (merged,) if merged else ()
    if not small:
        short = (
            f"None: every group has at least {MIN_ROWS} test records, and enough training records "
            "to be trained for."
        )
        return Answer(SMALL, short, reasons)
    whom = "this group is" if len(small) == 1 else "these groups are"
    short = f"{named(small)}: the results do not show whether {whom} well served."
    return Answer(SMALL, short, reasons, _small_table(run, small))


def _small_table(run: Run, small: list[str]) -> Table:
    results = run.chosen.results
    lines = []
    for name in small:
        place = results.groups.index(name)
        risk = results.risk.by_group[place]
        records = sum(line[place] for line in run.census.train)
        reasons = [f"test records (under {MIN_ROWS})"] if risk.rows < MIN_ROWS else []
        reasons += ["training records"] if risk.small else []
        level = estimate(risk, decimals_of(results))
        lines.append((name, f"{records:,}", f"{risk.rows:,}", level, " and ".join(reasons)))
    return Table(
        f"Groups with too few records; their {risk_name(results)} is mostly chance",
        ("Group", "Training records", "Test records", interval_name(results.test), "Too few"),
        tuple(lines),
    )
