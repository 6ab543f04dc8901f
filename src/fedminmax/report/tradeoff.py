"""Several models at a glance: each one's risk for its worst group, and for all records."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fedminmax.core.text import counted, listed
from fedminmax.findings.changes import change_between, worst_of
from fedminmax.findings.records import Interval, Results
from fedminmax.findings.tables import Table
from fedminmax.findings.text import TOO_FEW, decimals_of, estimate, interval_name, risk_name
from fedminmax.metrics.intervals import MIN_ROWS
from fedminmax.report.read_run import Run
from fedminmax.report.style import (
    INK,
    ReportFigure,
    distinct,
    is_narrow,
    plain_axes,
    readable_numbers,
    series_style,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Point:
    """One model: the mean risk over all records and the worst group's."""

    label: str
    is_baseline: bool
    overall: Interval
    worst: Interval
    worst_group: str


@dataclass(frozen=True)
class Points:
    """All models, and the steps from baselines to their methods."""

    points: tuple[Point, ...]
    steps: tuple[tuple[int, int], ...]


def trade_off_figure(runs: Sequence[Run], name: str) -> ReportFigure | None:
    """Describe the figure; None if no run has a group with enough rows to be worst off."""
    results = runs[0].chosen.results
    found = _points(runs)
    if not found.points:
        return None
    labels = [point.label for point in found.points]
    lowest = min(found.points, key=lambda point: point.worst.value or 0.0)
    return ReportFigure(
        name,
        "Worst group against the mean over all records",
        description=f"{counted(len(labels), 'point')} with intervals: {listed(labels)}. "
        f"{lowest.label} is "
        "lowest for its worst group.",
        caption="Down is better for the worst group, left is better on average over all records. "
        "An arrow leads from a run's baseline to the run. Lines are each value's "
        f"{interval_name(results.test)}.",
        width=8.2,
        height=4.2,
        narrow_height=3.4 + 0.22 * len(labels),
        draw=lambda figure: _draw(figure, found, risk_name(results)),
        tables=(_table(found, results),),
    )


def _points(runs: Sequence[Run]) -> Points:
    """Collect the models; a baseline that several runs share appears once."""
    points: list[Point] = []
    steps = []
    for run in runs:
        # Both models of a run have the same test records: either both have a worst group, or none.
        chosen = _point(run.chosen.results, run.label, base=False)
        if chosen is None:
            continue
        results = run.baseline.results if run.baseline else None
        baseline = _point(results, results.method.name, base=True) if results else None
        if run.baseline is not None and baseline is not None:
            if baseline not in points and baseline.label in [point.label for point in points]:
                baseline = replace(baseline, label=f"{baseline.label} ({run.baseline.folder})")
            if baseline not in points:
                points.append(baseline)
            steps.append((points.index(baseline), len(points)))
        points.append(chosen)
    return Points(tuple(points), tuple(steps))


def _point(results: Results, label: str, *, base: bool) -> Point | None:
    worst = worst_of(results)
    if worst is None:
        return None
    return Point(label, base, results.risk.overall, worst[1], worst[0])


def _draw(figure: "Figure", found: Points, risk: str) -> None:
    axes = figure.subplots()
    plain_axes(axes, "y")
    places = [(point.overall.value or 0.0, point.worst.value or 0.0) for point in found.points]
    for start, end in found.steps:
        axes.annotate(
            "",
            places[end],
            places[start],
            arrowprops={"arrowstyle": "->", "color": INK, "shrinkA": 7, "shrinkB": 7},
        )
    narrow = is_narrow(figure)
    labels = distinct([point.label for point in found.points], 30 if narrow else 34)
    for place, (point, (x, y)) in enumerate(zip(found.points, places, strict=True)):
        style = series_style(place)
        axes.plot(_ends(point.overall), [y, y], color=style.colour, lw=1.2, alpha=0.8, zorder=1)
        axes.plot([x, x], _ends(point.worst), color=style.colour, lw=1.2, alpha=0.8, zorder=1)
        axes.plot(
            [x],
            [y],
            color=style.colour,
            marker=style.marker,
            markersize=9,
            markeredgecolor=INK,
            fillstyle="none" if point.is_baseline else "full",
            markeredgewidth=1.6 if point.is_baseline else 0.8,
            linestyle="none",
            label=labels[place] + " (baseline)" * point.is_baseline,
        )
    readable_numbers(axes.xaxis, axes.get_xlim()[1])
    readable_numbers(axes.yaxis, axes.get_ylim()[1])
    axes.set_xlabel(f"mean {risk} over all test records")
    axes.set_ylabel(f"{risk} of the worst group")
    axes.locator_params(nbins=4 if narrow else 8)
    if narrow:
        figure.legend(loc="outside lower left", frameon=False, labelspacing=0.4)
    else:
        figure.legend(loc="outside right upper", frameon=False, labelspacing=0.9)


def _ends(interval: Interval) -> list[float]:
    ends = (interval.low, interval.high)
    return [end for end in ends if end is not None] if None not in ends else [float("nan")] * 2


def _table(found: Points, results: Results) -> Table:
    decimals, interval = decimals_of(results), interval_name(results.test)
    return Table(
        f"{risk_name(results)} of the worst group and of all records, lower is better",
        ("Model", "Worst group", f"Its risk ({interval})", f"All records ({interval})"),
        tuple(
            (
                point.label + " (baseline)" * point.is_baseline,
                point.worst_group,
                estimate(point.worst, decimals),
                estimate(point.overall, decimals),
            )
            for point in found.points
        ),
    )


def comparison(runs: Sequence[Run]) -> str:
    """Report which of several runs, or baselines, has the lowest worst-group risk, and how sure."""
    known = [(label, own) for label, own in _candidates(runs) if worst_of(own)]
    if len(known) < 2:
        return f"The runs cannot be compared: {TOO_FEW}, fewer than two groups have {MIN_ROWS}."
    ranked = sorted(known, key=lambda pair: _risk_of_worst(pair[1]).value or 0.0)
    first, second = (_risk_of_worst(own) for _, own in ranked[:2])
    results = ranked[0][1]
    decimals = decimals_of(results)
    doubts = [label for label, own in ranked if not own.converged]
    between = change_between("", min(first.rows, second.rows), second, first)
    clear = "clearly lower" if between and between.is_clear else "not clearly different"
    baselines = " and their baselines" if any(run.baseline for run in runs) else ""
    return (
        f"Of {len(runs)} runs{baselines}, {ranked[0][0]} has the lowest worst-group "
        f"{risk_name(results)}, {estimate(first, decimals)}; next is {ranked[1][0]} with "
        f"{estimate(second, decimals)}, {clear}{_may_change(doubts)}."
    )


def _candidates(runs: Sequence[Run]) -> list[tuple[str, Results]]:
    """Return all models with their names, a baseline that several runs share once."""
    found = [(run.label, run.chosen.results) for run in runs]
    seen: list[Results] = []
    for run in runs:
        if run.baseline is None:
            continue
        own = run.baseline.results
        if all((own.method, own.risk) != (other.method, other.risk) for other in seen):
            seen.append(own)
            found.append((f"{own.method.name} (baseline of {run.label})", own))
    return found


def _may_change(doubts: Sequence[str]) -> str:
    if not doubts:
        return ""
    return f"; with more rounds this may change, because not all have converged: {listed(doubts)}"


def _risk_of_worst(results: Results) -> Interval:
    worst = worst_of(results)
    return Interval(value=None, low=None, high=None) if worst is None else worst[1]
