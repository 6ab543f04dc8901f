"""The trade-off figure: each run's risk for its worst group, and for all rows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fedminmax.core.text import counted, listed
from fedminmax.findings.records import Interval, Results
from fedminmax.report.read_run import Run
from fedminmax.report.story import worst_of
from fedminmax.report.style import (
    INK,
    ReportFigure,
    Table,
    is_narrow,
    plain_axes,
    readable_numbers,
    series_style,
)
from fedminmax.report.text import decimals_of, distinct, estimate, interval_name, risk_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Point:
    """One model: the mean risk over all rows and the worst group's."""

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
        "Worst group against the mean over all rows",
        description=f"{counted(len(labels), 'point')} with intervals: {listed(labels)}. "
        f"{lowest.label} is "
        "lowest for its worst group.",
        caption="Down is better for the worst group, left is better on average over all rows. An "
        "arrow "
        f"leads from a run's baseline to the run. Lines are each value's {interval_name(results)}.",
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
        # Both models of a run have the same test rows: either both have a worst group, or none.
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
    axes.set_xlabel(f"mean {risk} over all test rows")
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
    decimals, interval = decimals_of(results), interval_name(results)
    return Table(
        f"{risk_name(results)} of the worst group and of all rows, lower is better",
        ("Model", "Worst group", f"Its risk ({interval})", f"All rows ({interval})"),
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
