"""Pictures of mean risk against that of the worst group: of a frontier, and of several runs.

The mean is to the right, the worst group up. In a frontier's picture the boundary is certified.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedminmax.core.text import counted, listed
from fedminmax.findings.frontier import (
    FrontierFile,
    corners,
    frontier_sentences,
    frontier_table,
    group_tables,
    name_of,
)
from fedminmax.findings.records import Interval, Results
from fedminmax.findings.tables import Table
from fedminmax.findings.text import (
    LOSS_NAMES,
    TOO_FEW,
    decimals_of,
    estimate,
    interval_name,
    risk_name,
)
from fedminmax.findings.training import class_of_models, worst_name
from fedminmax.findings.verdict import change_between, model_names, worst_of
from fedminmax.metrics.intervals import MIN_ROWS
from fedminmax.report.read_run import Run
from fedminmax.report.style import (
    FAINT,
    INK,
    MINIMAX,
    STANDARD,
    ReportFigure,
    distinct,
    export_figures,
    is_narrow,
    plain_axes,
    readable_numbers,
    series_style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CREATOR = "fedminmax frontier"
MARGIN, WIDE_MARGIN = 0.08, 0.6


def frontier_figure(frontier: FrontierFile, name: str) -> ReportFigure:
    """Describe the figure."""
    own = frontier.points[frontier.recommended - 1]
    return ReportFigure(
        name,
        "From the plain to the minimax model",
        description=f"{len(frontier.points)} models on a curve that falls from the plain model to "
        f"the minimax model, just above the certified boundary. The recommended one is number "
        f"{own.number}.",
        caption=" ".join((_directions(frontier.points[-1].results), *frontier_sentences(frontier))),
        width=8.2,
        height=4.4,
        narrow_height=4.2,
        draw=lambda figure: _draw(figure, frontier),
        tables=(frontier_table(frontier), *group_tables(frontier)),
    )


def write_picture(frontier: FrontierFile, folder: Path) -> Path:
    """Write the picture as SVG and PNG into the folder; return the SVG's path."""
    one = frontier_figure(frontier, "frontier")
    (*_, drawn), _ = export_figures([one], folder, CREATOR)
    return drawn


def boundary_figure(results: Results, plain: Results | None, name: str) -> ReportFigure | None:
    """Describe what a run's own rounds prove around its model; None if they prove nothing."""
    own = results.boundary
    if own is None or len(own.lines) < 2:
        return None
    standard, new = model_names(results)
    marks = [Mark(new, own.mean, own.worst, MINIMAX, "D")]
    if plain is not None and plain.boundary is not None:
        at = plain.boundary
        marks.insert(0, Mark(standard, at.mean, at.worst, STANDARD, "s"))
    loss, edge, worst = LOSS_NAMES[results.loss], corners(own.lines), worst_name(results)
    return ReportFigure(
        name,
        "How much better any model of this kind could be",
        description=f"{counted(len(marks), 'model')} above a certified boundary.",
        caption=f"{_directions(results)} The boundary follows from this run's own rounds, at no "
        f"further cost: no {class_of_models(results)} is below it. It is closest near this model; "
        "'fedminmax frontier' finds the models along it.",
        width=8.2,
        height=4.0,
        narrow_height=4.0,
        draw=lambda figure: _draw_plane(figure, marks, edge, (loss, worst)),
        tables=(
            Table(
                f"Training risks ({loss}), penalty included",
                ("model", "mean", worst),
                tuple((own.label, f"{own.mean:.5g}", f"{own.worst:.5g}") for own in marks),
            ),
        ),
    )


@dataclass(frozen=True)
class Mark:
    """A model in the picture."""

    label: str
    mean: float
    worst: float
    colour: str
    marker: str


def _draw(figure: "Figure", frontier: FrontierFile) -> None:
    points = frontier.points
    marks = [
        Mark(label, points[place].mean, points[place].worst, colour, marker)
        for place, (label, colour, marker) in _special(frontier).items()
    ]
    first = points[0].results
    names = (LOSS_NAMES[first.loss], worst_name(points[-1].results))
    curve = [(str(point.number), point.mean, point.worst) for point in points]
    _draw_plane(figure, marks, frontier.boundary, names, curve)


def _directions(results: Results) -> str:
    return (
        f"Training risks, penalty included. Down is better for the {worst_name(results)}, left is "
        "better on average."
    )


def _draw_plane(
    figure: "Figure",
    marks: Sequence[Mark],
    edge: Sequence[tuple[float, float]],
    names: tuple[str, str],
    curve: Sequence[tuple[str, float, float]] = (),
) -> None:
    """Draw the boundary, models, and a curve of numbered models; ``names`` are of both risks."""
    axes = figure.subplots()
    plain_axes(axes, "y")
    means = [*(own.mean for own in marks), *(mean for _, mean, _ in curve)]
    worst = [*(own.worst for own in marks), *(height for _, _, height in curve)]
    # Without a curve, the boundary is shown around the models, where it is closest.
    margin = MARGIN if curve else WIDE_MARGIN
    low, high = _with_margin(means, margin)
    bottom, top = _with_margin(worst, margin)
    ends = [(edge[0][0], max(top, edge[0][1])), *edge, (max(high, edge[-1][0]), edge[-1][1])]
    _draw_boundary(axes, ends, (min(low, edge[0][0]), min(bottom, edge[-1][1])))
    if curve:
        _, across, up = zip(*curve, strict=True)
        axes.plot(across, up, color=FAINT, marker="o", markersize=5, lw=1.2, label="models found")
    for own in marks:
        axes.plot(
            [own.mean],
            [own.worst],
            color=own.colour,
            marker=own.marker,
            markersize=10,
            markeredgecolor=INK,
            linestyle="none",
            label=own.label,
        )
    for number, mean, height in curve:
        axes.annotate(number, (mean, height), xytext=(5, 5), textcoords="offset points", color=INK)
    axes.set_xlim(low, high)
    axes.set_ylim(bottom, top)
    readable_numbers(axes.xaxis, high)
    readable_numbers(axes.yaxis, top)
    axes.set_xlabel(f"mean training {names[0]}, penalty included")
    axes.set_ylabel(f"of the {names[1]}")
    narrow = is_narrow(figure)
    axes.locator_params(axis="x", nbins=4 if narrow else 8)
    figure.legend(loc="outside lower left" if narrow else "outside right upper", frameon=False)


def _draw_boundary(
    axes: "Axes", edge: Sequence[tuple[float, float]], corner: tuple[float, float]
) -> None:
    across, up = [mean for mean, _ in edge], [worst for _, worst in edge]
    axes.fill(
        [corner[0], across[0], *across[1:], across[-1], corner[0]],
        [up[0], up[0], *up[1:], corner[1], corner[1]],
        color=FAINT,
        alpha=0.25,
        lw=0,
        label="no model of this kind",
    )
    axes.plot(across, up, color=FAINT, lw=1.2, linestyle="--", label="certified boundary")


def _special(frontier: FrontierFile) -> dict[int, tuple[str, str, str]]:
    """Return what is special about which points, with colour and marker."""
    own = frontier.recommended - 1
    found = {
        0: ("plain", STANDARD, "s"),
        len(frontier.points) - 1: ("minimax", MINIMAX, "D"),
    }
    found[own] = (name_of(frontier.points[own], frontier), MINIMAX, "*")
    return found


def _with_margin(values: Sequence[float], margin: float) -> tuple[float, float]:
    lowest, highest = min(values), max(values)
    room = margin * (highest - lowest) or MARGIN * abs(highest) or 1.0
    return lowest - room, highest + room


@dataclass(frozen=True)
class Model:
    """One model, the group for which it is worst, and that group's risk."""

    label: str
    results: Results
    is_baseline: bool
    worst_group: str
    worst: Interval


def models_of(runs: Sequence[Run]) -> list[Model]:
    """Return all models that have a worst group; a baseline that several runs share is one."""
    models: list[Model] = []
    for run in runs:
        trained = [(run.label, run.chosen.results, False)]
        if run.baseline is not None:
            baseline = run.baseline.results
            known = [(own.results.method, own.results.risk) for own in models]
            if (baseline.method, baseline.risk) not in known:
                name = f"{baseline.method.name} (baseline of {run.label})"
                trained.insert(0, (name, baseline, True))
        for label, results, is_baseline in trained:
            worst = worst_of(results)
            if worst is not None:
                models.append(Model(label, results, is_baseline, *worst))
    return models


def comparison(runs: Sequence[Run]) -> str:
    """Report which of several runs, or baselines, has the lowest worst-group risk, and how sure."""
    ranked = sorted(models_of(runs), key=lambda model: model.worst.value or 0.0)
    if len(ranked) < 2:
        return f"The runs cannot be compared: {TOO_FEW}, fewer than two groups have {MIN_ROWS}."
    first, second = ranked[:2]
    decimals = decimals_of(first.results)
    between = change_between(second.worst, first.worst)
    clear = "clearly lower" if between and between.is_clear else "not clearly different"
    baselines = " and their baselines" if any(run.baseline for run in runs) else ""
    doubts = [model.label for model in ranked if not model.results.converged]
    text = (
        f"Of {len(runs)} runs{baselines}, {first.label} has the lowest worst-group "
        f"{risk_name(first.results)}, {estimate(first.worst, decimals)}. Next is {second.label} "
        f"with {estimate(second.worst, decimals)}: {clear}."
    )
    if doubts:
        text += (
            f" With more rounds this may change, because not all have converged: {listed(doubts)}."
        )
    return text


def trade_off_figure(runs: Sequence[Run], name: str) -> ReportFigure | None:
    """Describe the figure; None if no run has a group with enough records to be worst off."""
    results, models = runs[0].chosen.results, models_of(runs)
    if not models:
        return None
    labels = [model.label for model in models]
    lowest = min(models, key=lambda model: model.worst.value or 0.0)
    return ReportFigure(
        name,
        "Worst group against the mean over all records",
        description=f"{counted(len(labels), 'point')} with intervals: {listed(labels)}. "
        f"{lowest.label} is lowest for its worst group.",
        caption="Down is better for the worst group, left is better on average over all records. "
        f"Baselines are hollow. Lines are each value's {interval_name(results.test)}.",
        width=8.2,
        height=4.2,
        narrow_height=3.4 + 0.22 * len(labels),
        draw=lambda figure: _draw_models(figure, models, risk_name(results)),
        tables=(_table(models, results),),
    )


def _table(models: Sequence[Model], results: Results) -> Table:
    decimals, interval = decimals_of(results), interval_name(results.test)
    return Table(
        f"{risk_name(results)} of the worst group and of all records, lower is better",
        ("Model", "Worst group", f"Its risk ({interval})", f"All records ({interval})"),
        tuple(
            (
                model.label,
                model.worst_group,
                estimate(model.worst, decimals),
                estimate(model.results.risk.overall, decimals),
            )
            for model in models
        ),
    )


def _draw_models(figure: "Figure", models: Sequence[Model], risk: str) -> None:
    axes = figure.subplots()
    plain_axes(axes, "y")
    narrow = is_narrow(figure)
    labels = distinct([model.label for model in models], 30 if narrow else 34)
    for place, (model, label) in enumerate(zip(models, labels, strict=True)):
        style, overall = series_style(place), model.results.risk.overall
        colour = STANDARD if model.is_baseline else MINIMAX
        x, y = overall.value or 0.0, model.worst.value or 0.0
        axes.plot(_ends(overall), [y, y], color=colour, lw=1.2, alpha=0.8, zorder=1)
        axes.plot([x, x], _ends(model.worst), color=colour, lw=1.2, alpha=0.8, zorder=1)
        axes.plot(
            [x],
            [y],
            color=colour,
            marker=style.marker,
            markersize=9,
            markeredgecolor=colour,
            fillstyle="none" if model.is_baseline else "full",
            markeredgewidth=1.6 if model.is_baseline else 0.8,
            linestyle="none",
            label=label,
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
