"""How far results spread over seeds: other splits of the same records, other starts, other draws.

The splits share most of their records, so the spread shows how much a single split can mislead; it
is not a confidence interval (Bengio and Grandvalet: No unbiased estimator of the variance of k-fold
cross-validation, JMLR 2004).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from fedminmax.core.errors import InputError
from fedminmax.core.text import counted
from fedminmax.findings.records import Interval, Results
from fedminmax.findings.tables import Table
from fedminmax.findings.text import NOTHING, TOO_FEW, decimals_of, number, span
from fedminmax.findings.verdict import EVERYONE, worst_of
from fedminmax.metrics.intervals import MIN_ROWS

WORST_GROUP = "worst group"
CAVEAT = (
    "Mean over seeds, in parentheses the lowest and the highest. The splits share records, so "
    "this is not a confidence interval: it shows how much one split can mislead."
)


@dataclass(frozen=True)
class ValueOverSeeds:
    """A value for each seed, in order (None if a split had no test records), and their spread."""

    mean: float
    deviation: float | None
    min: float
    max: float
    values: tuple[float | None, ...]


@dataclass(frozen=True)
class SpreadLine:
    """One group, all records, or the worst group: risks by model and their change.

    A group has too few rows if this is so in any seed's split.
    """

    name: str
    risks: dict[str, ValueOverSeeds | None]
    change: ValueOverSeeds | None
    too_few_rows: bool


@dataclass(frozen=True)
class SeedSpread:
    """The spread of a method's test risk, of its baseline's if there is one, and of the change.

    Each seed's run has its own verdict.
    """

    seeds: tuple[int, ...]
    verdicts: tuple[str, ...]
    models: tuple[str, ...]
    lines: tuple[SpreadLine, ...]
    not_converged: dict[str, tuple[int, ...]]


def spread_over_seeds(runs: Sequence[Sequence[Results]]) -> SeedSpread:
    """Combine the results of several seeds: for each the method's, then its baseline's."""
    first = runs[0]
    if any(own.groups != first[0].groups for results in runs for own in results):
        raise InputError("the seeds have different groups; train them on the same files")
    models, seeds = [own.method.name for own in first], [results[0].seed for results in runs]
    names = (*first[0].groups, EVERYONE, WORST_GROUP)
    risks = [[_risks(own) for own in results] for results in runs]
    changes = [_changes(results) for results in runs]
    lines = [
        SpreadLine(
            name,
            {
                model: _over_seeds([seed[column][place].value for seed in risks])
                for column, model in enumerate(models)
            },
            _over_seeds([None if own is None else own[place].value for own in changes]),
            too_few_rows=place < len(first[0].groups)
            and not all(seed[0][place].has_enough_rows for seed in risks),
        )
        for place, name in enumerate(names)
    ]
    unfinished = {
        model: tuple(results[0].seed for results in runs if results[column].converged is False)
        for column, model in enumerate(models)
    }
    not_converged = {name: which for name, which in unfinished.items() if which}
    verdicts = tuple(results[0].verdict.verdict for results in runs if results[0].verdict)
    return SeedSpread(tuple(seeds), verdicts, tuple(models), tuple(lines), not_converged)


def _risks(results: Results) -> list[Interval]:
    """Return the risks of the groups, of all records and of the worst group, if there is one."""
    worst = worst_of(results)
    none = Interval(value=None, low=None, high=None)
    return [*results.risk.by_group, results.risk.overall, none if worst is None else worst[1]]


def _changes(results: Sequence[Results]) -> list[Interval] | None:
    if results[0].change is None:
        return None
    change = results[0].change.risk
    return [*change.by_group, change.overall, change.worst]


def _over_seeds(values: Sequence[float | None]) -> ValueOverSeeds | None:
    """Return the sample's mean, deviation and ends; None without any value."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    deviation = stdev(known) if len(known) > 1 else None
    return ValueOverSeeds(fmean(known), deviation, min(known), max(known), tuple(values))


def spread_table(spread: SeedSpread, results: Results) -> Table:
    """Return a table with a line per group; numbers have the decimals of these results."""
    decimals = decimals_of(results)
    has_change = any(line.change for line in spread.lines)
    lines = []
    for line in spread.lines:
        cells = [line.name, *(_cell(risk, decimals) for risk in line.risks.values())]
        if has_change and line.too_few_rows:
            cells += [TOO_FEW, ""]
        elif has_change and line.change is None:
            cells += [NOTHING, ""]
        elif line.change is not None:
            values = [value for value in line.change.values if value is not None]
            below = sum(value < 0 for value in values)
            cells += [_cell(line.change, decimals), f"{below} of {len(values)}"]
        lines.append(tuple(cells))
    seeds = f"{counted(len(spread.seeds), 'seed')} ({spread.seeds[0]} to {spread.seeds[-1]})"
    return Table(
        f"Test risk by group over {seeds}",
        ("group", *spread.models, *(("change", "lower in") if has_change else ())),
        tuple(lines),
    )


def _cell(spread: ValueOverSeeds | None, decimals: int) -> str:
    if spread is None:
        return NOTHING
    return f"{number(spread.mean, decimals)} ({span(spread.min, spread.max, decimals)})"


def spread_notes(spread: SeedSpread) -> list[str]:
    """Explain how to read the table, and which runs have not converged."""
    found = [f"{verdict} ({count})" for verdict, count in Counter(spread.verdicts).most_common()]
    notes = [*([f"Verdicts: {'; '.join(found)}."] if found else []), CAVEAT]
    if any(line.change for line in spread.lines):
        notes.append(
            f"Change: {spread.models[0]} minus {spread.models[-1]} on the same records. 'Lower in' "
            "counts the seeds in which it is below 0."
        )
    if any(line.too_few_rows for line in spread.lines):
        notes.append(
            f"The worst group is the worst of those with at least {MIN_ROWS} test records in a "
            "split."
        )
    notes += [
        f"{name} has not converged with seed {', '.join(map(str, seeds))}: differences there may "
        "be due to rounds rather than methods; train with more --rounds."
        for name, seeds in spread.not_converged.items()
    ]
    return notes
