"""Tables that several pages show: mistakes and risks with their change, every metric by group."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedminmax.core.text import listed
from fedminmax.findings.changes import EVERYONE, changes_of
from fedminmax.findings.records import Measured, Metric, Results
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
from fedminmax.findings.verdict import (
    KINDS,
    change_cells,
    kinds_of,
    level_cell,
    measure_of,
    mistakes_of,
)
from fedminmax.findings.verdict_records import Change

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
        headers.append(baseline.method.name)
        for line, risk in zip(cells, (*baseline.risk.by_group, baseline.risk.overall), strict=True):
            line.append(estimate(risk, decimals))
    if results.change is not None:
        headers += ["change", "clear"]
        for line, change in zip(cells, changes_of(results), strict=True):
            line += _risk_cells(change, decimals)
    return Table(
        f"{capitalised(risk_name(results))} by group on test records, lower is better "
        f"({interval_name(results.test)})",
        tuple(headers),
        tuple(tuple(cells[place]) for place in small_last(results, results.test, cells)),
    )


def _risk_cells(change: Change | None, decimals: int) -> list[str]:
    """Return a change with its interval, and whether it is clear."""
    if change is None:
        return [NOTHING, NOTHING]
    if not change.has_enough_rows:
        return [TOO_FEW, NOTHING]
    interval = span(change.low, change.high, decimals)
    return [f"{number(change.value, decimals)} ({interval})", "yes" if change.is_clear else "no"]


def mistakes_tables(results: Results) -> list[Table]:
    """Return a table for each kind of mistake; in the first the run is told.

    With a baseline: before, after, the change, and for whom it is clearly better or worse. The
    groups that were worst before come first.
    """
    if results.change is not None:
        return [_mistakes_table(results, metric) for metric in kinds_of(results)]
    metric = kinds_of(results)[0]
    levels = results.test.metrics[metric]
    cells = [
        (name, f"{rows:,}", level_cell(results, metric, level))
        for name, rows, level in zip(
            (*results.groups, EVERYONE),
            (*(level.rows for level in levels.by_group), results.test.rows),
            (*levels.by_group, levels.overall),
            strict=True,
        )
    ]
    return [
        Table(
            f"{capitalised(measure_of(results, KINDS[metric]))}, on test records "
            f"({interval_name(results.test)})",
            ("group", "records", "new"),
            tuple(cells[place] for place in small_last(results, results.test, cells)),
        )
    ]


def _mistakes_table(results: Results, metric: str) -> Table:
    *groups, everyone = zip((*results.groups, EVERYONE), mistakes_of(results, metric), strict=True)
    judged = [(name, change) for name, change in groups if change and change.has_enough_rows]
    few = [entry for entry in groups if entry not in judged]
    judged.sort(key=lambda entry: -entry[1].before)
    change = results.change
    at_once = f", for all {change.comparisons:,} comparisons at once" if change else ""
    return Table(
        f"{capitalised(measure_of(results, KINDS[metric]))}, on test records "
        f"({interval_name(results.test)} of the change{at_once})",
        ("group", "records", "standard", "new", "change"),
        tuple(
            (name, NOTHING if one is None else f"{one.rows:,}", *change_cells(results, one))
            for name, one in (*judged, everyone, *few)
        ),
    )


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


def parity_table(results: Results, test: Measured, *, sites: bool = True) -> Table | None:
    """Return differences and ratios of rates between groups, over all records and by site.

    None if there are none, or no two groups to compare.
    """
    measured = [(EVERYONE, name, own) for name, own in test.parity.items()]
    if sites:
        measured += [
            (site, name, own)
            for site, measures in (results.site_parity or {}).items()
            for name, own in measures.items()
        ]
    lines = [
        (
            name.replace("_", " "),
            of,
            estimate(own.difference, 3),
            estimate(own.ratio, 3),
            own.lowest or NOTHING,
            own.highest or NOTHING,
            listed(own.left_out) if own.left_out else NOTHING,
        )
        for of, name, own in measured
        if own.highest is not None
    ]
    if not lines:
        return None
    return Table(
        f"Rates of “{results.classes[1]}” between groups ({interval_name(test)})",
        ("measure", "records", "difference", "ratio", "lowest", "highest", "left out: too few"),
        tuple(lines),
    )


def _starred(metric: Metric, decimals: int, group: str, place: int) -> str:
    return estimate(metric.by_group[place], decimals) + " *" * (metric.worst_group == group)
