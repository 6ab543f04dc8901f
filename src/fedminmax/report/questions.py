"""Three questions of a reader: could it be better, what would help, which groups are too small?

Each has a short answer, and reasons. Where nothing is known, the answer says so and why.
"""

from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass

from fedminmax.advice.advise import advise_census
from fedminmax.core.bound_text import upper_percent
from fedminmax.core.convergence import BY_VALIDATION
from fedminmax.core.text import counted, listed
from fedminmax.metrics.intervals import MIN_ROWS
from fedminmax.report.read_run import Run
from fedminmax.report.story import worst_of
from fedminmax.report.style import Table
from fedminmax.report.text import decimals_of, estimate, interval_name, number, risk_name
from fedminmax.runs.advice_text import remedies
from fedminmax.runs.layout import CENSUS_FILE
from fedminmax.runs.measure import merged_groups_text
from fedminmax.runs.remarks import certificate_text, unproved_reason, verdict_of

BETTER = "Could any model of this kind do better?"
HELP = "What would help?"
SMALL = "Which groups are too small to say anything about?"
# A gap below this share of the worst risk cannot matter to anybody.
HARDLY = 0.001
# A group with less weight had no influence on the model.
NO_WEIGHT = 0.001
# Losses that are also the risk on test rows, so that both can be compared.
SAME_ON_TEST_ROWS = ("brier", "squared_error")
MAX_NAMED = 8


@dataclass(frozen=True)
class Answer:
    """A short answer, what it rests on, and numbers if there are any."""

    question: str
    short: str
    reasons: tuple[str, ...] = ()
    _: KW_ONLY
    table: Table | None = None


def could_be_better(run: Run) -> Answer:
    """Answer with the proof, in words; without one, say why there is none."""
    results = run.chosen.results
    proved = results.proof.certificate if results.proof else None
    rounds = verdict_of(results)
    if proved is None or not proved.is_of_groups:
        reason = unproved_reason(results) if proved is None else certificate_text(results) or ""
        return Answer(BETTER, "That is not known: nothing is proved here.", (reason, rounds))
    size = upper_percent(proved.gap)
    what = f"{results.model.kind} model on these features"
    if proved.gap <= HARDLY:
        short = (
            f"No: whatever its parameters, a {what} can bring the highest risk of any group in "
            f"training, penalty included, at most {size} below this model's."
        )
    else:
        short = (
            f"Perhaps: it is proved only that no {what} brings the highest risk of any group in "
            f"training, penalty included, more than {size} below this model's."
        )
    about = (
        "The proof is about the highest risk, these training rows and these features. A group "
        "whose risk is lower may be served better by another model. Other features, other kinds of "
        "model and other rows are not covered."
    )
    return Answer(BETTER, short, (certificate_text(results) or "", about, rounds))


def what_would_help(run: Run) -> Answer:
    """Answer with what the results suggest, then with what the row counts suggest."""
    found = [*_from_results(run), *_from_counts(run)]
    if not found:
        short = (
            "Nothing stands out: training has converged, and every group has enough rows and more "
            "than one site."
        )
        return Answer(HELP, short)
    short = f"{counted(len(found), 'thing')}, the most important first."
    if len(found) > MAX_NAMED:
        rest = (
            f"{len(found) - MAX_NAMED:,} more: fedminmax advise {run.chosen.folder / CENSUS_FILE}"
        )
        found = [*found[:MAX_NAMED], rest]
    return Answer(HELP, short, tuple(found))


def _from_results(run: Run) -> Iterator[str]:
    results = run.chosen.results
    found = results.convergence
    if found and not (found.converged or found.reason == BY_VALIDATION):
        yield f"More rounds: {verdict_of(results)}"
    worst = worst_of(results)
    if worst is None:
        return
    name, measured = worst
    place = results.groups.index(name)
    rows = sum(line[place] for line in run.census.train)
    trained = run.chosen.rounds[-1].risks[place]
    other = 'such as kind = "spline" or "mlp" in [model]'
    if results.model.hidden:
        other = "such as a larger one"
    comparable = results.loss in SAME_ON_TEST_ROWS and trained is not None
    if comparable and measured.low is not None and (trained or 0.0) < measured.low:
        decimals = decimals_of(results)
        yield (
            f"More rows of “{name}”, which is worst off: on its {counted(rows, 'training row')} "
            f"the model's {risk_name(results)} is {number(trained, decimals)}, on test rows "
            f"{estimate(measured, decimals)}. What it learned from these rows does not hold for "
            "others of the group."
        )
    elif comparable:
        yield (
            f"Other features, or another kind of model, {other}: for “{name}”, which is worst off, "
            f"the model is no better on its own {counted(rows, 'training row')} than on test rows, "
            "so more rows of the same kind would hardly help."
        )
    elif results.proof is not None and results.proof.certificate.gap <= HARDLY:
        kind = results.model.kind
        yield (
            f"Other features, or another kind of model, {other}: no {kind} model on these features "
            f"has a lower highest risk in training.{_not_protected(run, name)}"
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
        f" “{name}”, which is worst off on test rows, had no weight in training, which was for "
        f"{listed([f'“{own}”' for own in most[:3]])}: another model may serve it better."
    )


def _from_counts(run: Run) -> list[str]:
    """Return what the adviser says of the rows by site and group, and of the method."""
    results = run.chosen.results
    advice = advise_census(run.census, results.loss, results.method.key, _minimum_size(run))
    return remedies(advice)


def _minimum_size(run: Run) -> int:
    """Return how many training rows a group needs, as the configuration says; 0: the default."""
    section = run.settings.get("groups")
    size = section.get("minimum_size") if isinstance(section, Mapping) else None
    return size if isinstance(size, int) else 0


def too_small(run: Run) -> Answer:
    """Answer with the groups that have too few test or training rows, apart from the others."""
    results = run.chosen.results
    small = results.test.small_groups(results.groups)
    merged = merged_groups_text(results)
    if not small:
        short = (
            f"None: every group has at least {MIN_ROWS} test rows, and enough training rows to be "
            "trained for."
        )
        return Answer(SMALL, short, (merged,) if merged else ())
    names = [f"“{name}”" for name in small][:MAX_NAMED]
    if len(small) > MAX_NAMED:
        names.append(f"{len(small) - MAX_NAMED:,} more")
    whom = "this group is" if len(small) == 1 else "these groups are"
    short = f"{listed(names)}: the results do not show whether {whom} well served."
    return Answer(SMALL, short, (merged,) if merged else (), table=_small_table(run, list(small)))


def _small_table(run: Run, small: list[str]) -> Table:
    results, decimals = run.chosen.results, decimals_of(run.chosen.results)
    lines = []
    for name in small:
        place = results.groups.index(name)
        own = results.risk.by_group[place]
        rows = sum(line[place] for line in run.census.train)
        lines.append((name, f"{rows:,}", f"{own.rows:,}", estimate(own, decimals), _why(run, name)))
    return Table(
        f"Groups with too few rows; their {risk_name(results)} is mostly noise",
        ("Group", "Training rows", "Test rows", interval_name(results), "Too few"),
        tuple(lines),
    )


def _why(run: Run, name: str) -> str:
    results = run.chosen.results
    own = results.risk.by_group[results.groups.index(name)]
    reasons = [f"test rows (under {MIN_ROWS})"] if own.rows < MIN_ROWS else []
    if own.small:
        reasons.append("training rows")
    return " and ".join(reasons)
