"""Tables that several pages show: risks with their change, every metric by group, mistakes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedminmax.findings.changes import EVERYONE, Change, changes_of
from fedminmax.findings.groups import PERCENT, kinds_of_mistakes
from fedminmax.findings.records import Interval, Measured, Metric, Results
from fedminmax.findings.text import (
    NOTHING,
    TOO_FEW,
    capitalised,
    decimals_of,
    estimate,
    interval_name,
    metric_name,
    number,
    risk_name,
    span,
)
from fedminmax.metrics.row_scores import FALSE_ALARMS, MISSED

DIFFERENCE = "highest minus lowest group"


@dataclass(frozen=True)
class Table:
    """A table of text cells; the first column names its lines."""

    caption: str
    headers: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]


def small_last(results: Results, test: Measured, cells: Sequence[Sequence[str]]) -> list[int]:
    """Order lines, those of groups first: with enough records, the others, with few records."""
    small = test.small_groups(results.groups)
    few = [place for place, name in enumerate(results.groups) if name in small]
    return [place for place in range(len(cells)) if place not in few] + few


def risk_table(results: Results, baseline: Results | None = None) -> Table:
    """Return a line per group and for all records; with a baseline, also the change."""
    decimals, metric = decimals_of(results), results.risk
    headers = ["group", "records", results.method.name]
    cells = [
        [name, f"{count:,}", estimate(risk, decimals)]
        for name, count, risk in zip(
            (*results.groups, EVERYONE),
            (*(group.rows for group in metric.by_group), results.test.rows),
            (*metric.by_group, metric.overall),
            strict=True,
        )
    ]
    if baseline is not None:
        headers += [baseline.method.name, "change", "clear"]
        before = [*baseline.risk.by_group, baseline.risk.overall]
        for line, risk, change in zip(cells, before, changes_of(results, baseline), strict=True):
            line += [estimate(risk, decimals), *change_cells(change, decimals)]
    return Table(
        f"{capitalised(risk_name(results))} by group on test records, lower is better "
        f"({interval_name(results.test)})",
        tuple(headers),
        tuple(tuple(cells[place]) for place in small_last(results, results.test, cells)),
    )


def change_cells(change: Change | None, decimals: int) -> list[str]:
    """Return a change with its interval, and whether it is clear."""
    if change is None:
        return [NOTHING, NOTHING]
    if not change.has_enough_records:
        return [TOO_FEW, NOTHING]
    interval = span(change.low, change.high, decimals)
    return [f"{number(change.value, decimals)} ({interval})", "yes" if change.is_clear else "no"]


def metrics_table(
    results: Results, test: Measured, title: str, names: Iterable[str] | None = None
) -> Table:
    """Return metrics by group and over all records, and their largest difference.

    A star marks the worst group of a column.
    """
    shown = list(test.metrics if names is None else names)
    columns = [(test.metrics[name], decimals_of(results, name, test)) for name in shown]
    first = next(iter(test.metrics.values()))
    lines = [
        (name, f"{first.by_group[place].rows:,}", *(_starred(*own, name, place) for own in columns))
        for place, name in enumerate(results.groups)
    ]
    lines += [
        (EVERYONE, f"{test.rows:,}", *(estimate(own.overall, places) for own, places in columns)),
        (DIFFERENCE, NOTHING, *(estimate(own.difference, places) for own, places in columns)),
    ]
    return Table(
        f"{title} ({interval_name(test)})",
        ("group", "records", *(metric_name(name, results) for name in shown)),
        tuple(lines[place] for place in small_last(results, test, lines)),
    )


def _starred(metric: Metric, decimals: int, group: str, place: int) -> str:
    return estimate(metric.by_group[place], decimals) + " *" * (metric.worst_group == group)


def mistakes_table(results: Results, baseline: Results | None) -> Table | None:
    """Return both kinds of mistakes by group, of baseline and method; None without them."""
    kinds = kinds_of_mistakes(results, baseline)
    if baseline is None or not kinds:
        return None
    models = (baseline, results)
    columns = [own.test.metrics[metric] for metric in kinds for own in models]
    positive = f"“{results.classes[1]}”"
    words = {MISSED: f"missed {positive}", FALSE_ALARMS: f"false alarms of {positive}"}
    headers = [f"{words[metric]}, {own.method.name}" for metric in kinds for own in models]
    lines = [
        (name, f"{own.rows:,}", *(_rate(column.by_group[place]) for column in columns))
        for place, (name, own) in enumerate(zip(results.groups, results.risk.by_group, strict=True))
    ]
    whole = (EVERYONE, f"{results.test.rows:,}", *(_rate(column.overall) for column in columns))
    return Table(
        f"Missed: share of those that are {positive}. False alarms: share of those that are not. "
        f"In parentheses: {interval_name(results.test)}",
        ("group", "records", *headers),
        (*lines, whole),
    )


def _rate(interval: Interval) -> str:
    if interval.value is None:
        return NOTHING
    value = f"{number(PERCENT * interval.value, 0)} %"
    if interval.low is None or interval.high is None:
        return value
    return f"{value} ({span(PERCENT * interval.low, PERCENT * interval.high, 0)})"
