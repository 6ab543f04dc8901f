"""Tables that several pages show: mistakes and risks with their change, every metric by group."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedminmax.core.text import listed
from fedminmax.data.tables.census import CensusFile
from fedminmax.findings.disclosure import decimals_told, is_told, publishable
from fedminmax.findings.records import RISK, Measured, Metric, Results
from fedminmax.findings.text import (
    NOTHING,
    capitalised,
    decimals_of,
    estimate,
    interval_name,
    metric_name,
    number,
)
from fedminmax.findings.verdict import (
    EVERYONE,
    KINDS,
    change_cells,
    kinds_of,
    level_cell,
    measure_of,
    mistakes_of,
    model_names,
)
from fedminmax.metrics.row_scores import SELECTED

DIFFERENCE = "highest minus lowest group"
ARROW = "\N{RIGHTWARDS ARROW}"
# Of a table that a screen shows whole.
MAX_COLUMNS = 6


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


def records_cells(test: Measured) -> tuple[str, ...]:
    """Return the test records of each group and of all, as far as they may be passed on."""
    counts = publishable([level.rows for level in next(iter(test.metrics.values())).by_group])
    return *counts.cells, counts.total_cell


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
        (name, rows, level_cell(results, metric, level, name))
        for name, rows, level in zip(
            (*results.groups, EVERYONE),
            records_cells(results.test),
            (*levels.by_group, levels.overall),
            strict=True,
        )
    ]
    return [
        Table(
            f"{capitalised(measure_of(results, KINDS[metric]))}, on test records "
            f"({interval_name(results.test)})",
            ("group", "records", model_names(results)[1]),
            tuple(cells[place] for place in small_last(results, results.test, cells)),
        )
    ]


def _mistakes_table(results: Results, metric: str) -> Table:
    *changes, whole = mistakes_of(results, metric)
    groups = [
        (name, own if is_told(results.test, metric, place) else None)
        for place, (name, own) in enumerate(zip(results.groups, changes, strict=True))
    ]
    judged = [(name, own) for name, own in groups if own and own.has_enough_rows]
    few = [entry for entry in groups if entry not in judged]
    judged.sort(key=lambda entry: -entry[1].before)
    counts = _records_of(results, metric)
    change = results.change
    at_once = f", for all {change.comparisons:,} comparisons at once" if change else ""
    return Table(
        f"{capitalised(measure_of(results, KINDS[metric]))}, on test records "
        f"({interval_name(results.test)} of the change{at_once})",
        ("group", "records", *model_names(results), "change"),
        tuple(
            (name, NOTHING if one is None else counts[name], *change_cells(results, one))
            for name, one in (*judged, (EVERYONE, whole), *few)
        ),
    )


def _records_of(results: Results, metric: str) -> dict[str, str]:
    """Return the records that a kind of mistake is about, as far as they may be passed on.

    Those of the positive class and the others add up to a group's: a rate has no count of a group
    of which any of these is hidden.
    """
    own = [change.rows if change else 0 for change in mistakes_of(results, metric)]
    kinds = [metric] if metric == kinds_of(results)[0] else kinds_of(results)
    hidden = {
        place
        for kind in kinds
        for place in publishable(
            [one.rows if one else 0 for one in mistakes_of(results, kind)[:-1]]
        ).hidden
    }
    return {
        name: NOTHING if place in hidden else f"{rows:,}"
        for place, (name, rows) in enumerate(zip((*results.groups, EVERYONE), own, strict=True))
    }


def groups_table(results: Results, census: CensusFile) -> tuple[Table, list[str]]:
    """Return the records of each group and the sites that have it, and notes on small counts."""
    tests = (*census.test, *census.other_tests.values())
    parts = {"training record": census.train, "test record": tests}
    counts = {
        what: publishable(
            [sum(line[place] for line in table) for place in range(len(results.groups))]
        )
        for what, table in parts.items()
    }
    sites = [sum(line[place] > 0 for line in census.train) for place in range(len(results.groups))]
    totals = [part.total_cell for part in counts.values()]
    whole, hidden = len(census.sites), {place for own in counts.values() for place in own.hidden}
    table = Table(
        "Records by group",
        ("group", *(f"{what}s" for what in counts), "sites that have it"),
        (
            *zip(
                results.groups,
                *(own.cells for own in counts.values()),
                # A group at nine sites has nine records at least.
                [
                    NOTHING if place in hidden else f"{own} of {whole}"
                    for place, own in enumerate(sites)
                ],
                strict=True,
            ),
            (EVERYONE, *totals, str(whole)),
        ),
    )
    return table, [own.note(results.groups, what) for what, own in counts.items() if own.hidden]


def metrics_table(
    results: Results, test: Measured, title: str, names: Iterable[str] | None = None
) -> Table:
    """Return metrics by group and over all records, and their largest difference.

    A star marks the worst group of a column.
    """
    shown = list(test.metrics if names is None else names)
    columns = [(test.metrics[name], decimals_of(results, name, test)) for name in shown]
    counts = records_cells(test)
    lines = [
        (
            name,
            counts[place],
            *(
                _starred(own, min(decimals, decimals_told(test, metric, place)), name, place)
                if is_told(test, metric, place)
                else NOTHING
                for metric, (own, decimals) in zip(shown, columns, strict=True)
            ),
        )
        for place, name in enumerate(results.groups)
    ]
    lines += [
        (EVERYONE, counts[-1], *(estimate(own.overall, places) for own, places in columns)),
        (DIFFERENCE, NOTHING, *(estimate(own.difference, places) for own, places in columns)),
    ]
    return Table(
        f"{title} ({interval_name(test)})",
        ("group", "records", *(metric_name(name, results) for name in shown)),
        tuple(lines[place] for place in small_last(results, test, lines)),
    )


def personal_table(results: Results, personal: Measured) -> Table:
    """Return risks of the models that sites keep, and rates of what they answer."""
    title = "Personal models, each on the test records of its site"
    shown = [name for name in (RISK, SELECTED) if name in personal.metrics]
    return metrics_table(results.model_copy(update={"test": personal}), personal, title, shown)


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


def models_table(results: Results, baseline: Results | None) -> list[Table]:
    """Return every measure of both models by group, in tables that fit on a screen.

    The groups that were worst off come first; intervals are in the report's CSV.
    """
    names, risks = list(results.test.metrics), (baseline or results).risk.by_group
    counts, places = records_cells(results.test), range(len(results.groups))
    small = results.test.small_groups(results.groups)
    order = sorted(places, key=lambda place: -(risks[place].value or 0.0))
    order.sort(key=lambda place: results.groups[place] in small)
    both = f" {ARROW} ".join(model_names(results)) if baseline else results.method.name
    tables = []
    for start in range(0, len(names), MAX_COLUMNS):
        shown = names[start : start + MAX_COLUMNS]
        lines = [
            (
                results.groups[place],
                counts[place],
                *(_both(results, baseline, name, place) for name in shown),
            )
            for place in order
        ]
        overall = (EVERYONE, counts[-1], *(_both(results, baseline, name, None) for name in shown))
        tables.append(
            Table(
                f"Measures by group on test records: {both}",
                ("group", "records", *(metric_name(name, results) for name in shown)),
                (*lines, overall),
            )
        )
    return tables


def _both(results: Results, baseline: Results | None, metric: str, place: int | None) -> str:
    """Return a measure of the standard model and of the new one; of few records, nothing."""
    decimals, levels = decimals_of(results, metric), []
    for own in (baseline, results):
        if own is not None and metric in own.test.metrics:
            if place is not None and not is_told(own.test, metric, place):
                return NOTHING
            found = own.test.metrics[metric]
            if place is not None:
                decimals = min(decimals, decimals_told(own.test, metric, place))
            levels.append(found.overall if place is None else found.by_group[place])
    return f" {ARROW} ".join(number(level.value, decimals) for level in levels)


def _starred(metric: Metric, decimals: int, group: str, place: int) -> str:
    return estimate(metric.by_group[place], decimals) + " *" * (metric.worst_group == group)
