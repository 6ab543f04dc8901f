"""How far results spread over seeds: other splits of the same rows, other starts, other draws.

The splits share most of their rows, so the spread shows how much a single split can mislead; it is
not a confidence interval (Bengio and Grandvalet: No unbiased estimator of the variance of k-fold
cross-validation, JMLR 2004).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from fedminmax.core.errors import InputError
from fedminmax.findings.changes import EVERYONE, measured_change
from fedminmax.findings.records import Interval, Results
from fedminmax.findings.text import TOO_FEW, decimals_of, estimate
from fedminmax.metrics.intervals import MIN_ROWS

WORST_GROUP = "worst group"
CAVEAT = (
    "Mean over seeds, in parentheses the lowest and the highest. The splits share records, so "
    "this is not a confidence interval: it shows how much one split can mislead."
)


@dataclass(frozen=True)
class ValueOverSeeds:
    """A value for each seed, in order; None if a split had no test rows for it."""

    values: tuple[float | None, ...]

    @property
    def known(self) -> list[float]:
        """The values that are not None."""
        return [value for value in self.values if value is not None]

    def as_json(self) -> dict[str, object] | None:
        """Return mean, sample deviation, minimum, maximum and the values; None without any."""
        if not self.known:
            return None
        return {
            "mean": fmean(self.known),
            "deviation": stdev(self.known) if len(self.known) > 1 else None,
            "min": min(self.known),
            "max": max(self.known),
            "values": list(self.values),
        }

    @property
    def ends(self) -> Interval:
        """The mean, with the lowest and the highest value as its interval."""
        if not self.known:
            return Interval(value=None, low=None, high=None)
        return Interval(value=fmean(self.known), low=min(self.known), high=max(self.known))


@dataclass(frozen=True)
class SpreadLine:
    """One group, all rows, or the worst group: risks by model and their change.

    A group has too few rows if this is so in any seed's split.
    """

    name: str
    risks: tuple[ValueOverSeeds, ...]
    change: ValueOverSeeds | None
    too_few_rows: bool


@dataclass(frozen=True)
class SeedSpread:
    """The spread of a method's test risk, of its baseline's if there is one, and of the change."""

    seeds: tuple[int, ...]
    models: tuple[str, ...]
    lines: tuple[SpreadLine, ...]
    not_converged: dict[str, tuple[int, ...]]
    decimals: int


def spread_over_seeds(runs: Sequence[Sequence[Results]]) -> SeedSpread:
    """Combine the results of several seeds: for each the method's, then its baseline's."""
    first = runs[0]
    groups = first[0].groups
    if any(own.groups != groups for results in runs for own in results):
        raise InputError("the seeds have different groups; train them on the same files")
    changes = [
        measured_change(results[0], results[1]) if len(results) > 1 else None for results in runs
    ]
    lines = [
        _line(
            name,
            [[own.risk.by_group[n] for own in results] for results in runs],
            [None if own is None else own.by_group[n] for own in changes],
        )
        for n, name in enumerate(groups)
    ]
    overall = [[own.risk.overall for own in results] for results in runs]
    total = [None if own is None else own.overall for own in changes]
    lines.append(_line(EVERYONE, overall, total))
    worst = [[_worst(own) for own in results] for results in runs]
    of_worst = [None if own is None else own.worst for own in changes]
    lines.append(_line(WORST_GROUP, worst, of_worst))
    seeds = tuple(results[0].seed for results in runs)
    not_converged = {
        own.method.name: tuple(
            seed
            for seed, results in zip(seeds, runs, strict=True)
            if results[place].converged is False
        )
        for place, own in enumerate(first)
    }
    return SeedSpread(
        seeds,
        tuple(own.method.name for own in first),
        tuple(lines),
        {name: which for name, which in not_converged.items() if which},
        decimals_of(first[0]),
    )


def spread_cells(spread: SeedSpread) -> tuple[list[str], list[list[str]]]:
    """Return headers and lines of a table."""
    has_change = any(line.change for line in spread.lines)
    headers = ["group", *spread.models, *(["change", "lower in"] if has_change else [])]
    lines = []
    for line in spread.lines:
        cells = [line.name, *(estimate(risk.ends, spread.decimals) for risk in line.risks)]
        if line.change and line.too_few_rows:
            cells += [TOO_FEW, ""]
        elif line.change:
            known = line.change.known
            below = sum(value < 0 for value in known)
            change = estimate(line.change.ends, spread.decimals)
            cells += [change, f"{below} of {len(known)}"]
        lines.append(cells)
    return headers, lines


def spread_notes(spread: SeedSpread) -> list[str]:
    """Explain how to read the table, and which runs have not converged."""
    notes = [CAVEAT]
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


def spread_as_json(spread: SeedSpread) -> dict[str, object]:
    """Return the spread as plain values."""
    return {
        "seeds": list(spread.seeds),
        "models": list(spread.models),
        "lines": [
            {
                "name": line.name,
                "risks": {
                    model: risk.as_json()
                    for model, risk in zip(spread.models, line.risks, strict=True)
                },
                "change": line.change.as_json() if line.change else None,
                "too_few_rows": line.too_few_rows,
            }
            for line in spread.lines
        ],
        "not_converged": {name: list(seeds) for name, seeds in spread.not_converged.items()},
    }


def _line(
    name: str, risks: Sequence[Sequence[Interval]], changes: Sequence[Interval | None]
) -> SpreadLine:
    """Make a line from the intervals of each seed, model by model, and their changes."""
    known = [own for own in changes if own is not None]
    is_group = name not in (EVERYONE, WORST_GROUP)
    return SpreadLine(
        name,
        tuple(ValueOverSeeds(tuple(own.value for own in one)) for one in zip(*risks, strict=True)),
        ValueOverSeeds(tuple(None if own is None else own.value for own in changes))
        if known
        else None,
        too_few_rows=is_group and not all(own[0].has_enough_rows for own in risks),
    )


def _worst(results: Results) -> Interval:
    """Return the risk of the worst group that has enough rows to be compared."""
    worst = results.risk.worst_group
    if worst is None:
        return Interval(value=None, low=None, high=None)
    return results.risk.by_group[results.groups.index(worst)]
