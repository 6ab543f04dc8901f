"""The picture of a frontier: mean to the right, worst group up, and the boundary that is proved."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedminmax.findings.frontier import (
    FrontierFile,
    frontier_sentences,
    frontier_table,
    group_tables,
    name_of,
)
from fedminmax.findings.text import LOSS_NAMES
from fedminmax.report.style import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    ORANGE,
    ReportFigure,
    is_narrow,
    missing_glyphs_ignored,
    plain_axes,
    readable_numbers,
    save_figure,
    styled_figure,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CREATOR = "fedminmax frontier"
MARGIN = 0.08


def frontier_figure(frontier: FrontierFile, name: str) -> ReportFigure:
    """Describe the figure."""
    own = frontier.points[frontier.recommended - 1]
    return ReportFigure(
        name,
        "From the plain to the minimax model",
        description=f"{len(frontier.points)} models on a curve that falls from the plain model to "
        f"the minimax model, just above the certified boundary. The recommended one is number "
        f"{own.number}.",
        caption="Training risks, penalty included. Down is better for the worst group, left is "
        f"better on average. {' '.join(frontier_sentences(frontier))}",
        width=8.2,
        height=4.4,
        narrow_height=4.2,
        draw=lambda figure: _draw(figure, frontier),
        tables=(frontier_table(frontier), *group_tables(frontier)),
    )


def write_picture(frontier: FrontierFile, folder: Path) -> Path:
    """Write the picture as SVG and PNG into the folder; return the SVG's path."""
    one = frontier_figure(frontier, "frontier")
    with (
        missing_glyphs_ignored(),
        styled_figure(one.width, one.height, as_text=False) as figure,
    ):
        one.draw(figure)
        *_, drawn = save_figure(figure, folder / one.name, CREATOR)
    return drawn


def _draw(figure: "Figure", frontier: FrontierFile) -> None:
    axes = figure.subplots()
    plain_axes(axes, "y")
    means = [point.mean for point in frontier.points]
    worst = [point.worst for point in frontier.points]
    low, high = _with_margin(means)
    bottom, top = _with_margin(worst)
    edge = [(frontier.boundary[0][0], top), *frontier.boundary, (high, frontier.boundary[-1][1])]
    _draw_boundary(axes, edge, (low, bottom))
    axes.plot(means, worst, color=BLUE, marker="o", markersize=5, lw=1.2, label="models found")
    for place, (label, colour, marker) in _special(frontier).items():
        axes.plot(
            [means[place]],
            [worst[place]],
            color=colour,
            marker=marker,
            markersize=10,
            markeredgecolor=INK,
            linestyle="none",
            label=label,
        )
    for point in frontier.points:
        axes.annotate(
            str(point.number),
            (point.mean, point.worst),
            xytext=(5, 5),
            textcoords="offset points",
            color=INK,
        )
    axes.set_xlim(low, high)
    axes.set_ylim(bottom, top)
    readable_numbers(axes.xaxis, high)
    readable_numbers(axes.yaxis, top)
    loss = LOSS_NAMES[frontier.points[0].results.loss]
    axes.set_xlabel(f"mean training {loss}, penalty included")
    axes.set_ylabel("of the worst group")
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
    found = {0: ("plain", ORANGE, "s"), len(frontier.points) - 1: ("minimax", BLUE, "D")}
    found[own] = (name_of(frontier.points[own], frontier), GREEN, "*")
    return found


def _with_margin(values: Sequence[float]) -> tuple[float, float]:
    lowest, highest = min(values), max(values)
    room = MARGIN * (highest - lowest) or MARGIN * abs(highest) or 1.0
    return lowest - room, highest + room
