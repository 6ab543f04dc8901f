"""A figure of the group mixes that sites can produce: a triangle for three groups, else bars."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedminmax.advice.counts import MOSTLY, Advice
from fedminmax.core.text import counted
from fedminmax.findings.advice import answer, groups_table
from fedminmax.findings.text import percent
from fedminmax.report.style import (
    BLUE,
    FAINT,
    HATCH,
    INK,
    ReportFigure,
    distinct,
    is_narrow,
    plain_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Point = tuple[float, float]
CORNERS: tuple[Point, ...] = ((0.0, 0.0), (1.0, 0.0), (0.5, math.sqrt(0.75)))
MAX_NAMED_SITES = 12
MAX_GROUPS = 30


@dataclass(frozen=True)
class Mark:
    """The marker of a mix."""

    marker: str
    colour: str
    label: str


SITE = Mark("o", BLUE, "a site")
EVERYONE = Mark("x", INK, "all records")


def mixes_figure(advice: Advice, name: str) -> ReportFigure:
    """Describe the figure."""
    is_triangle = len(advice.groups) == 3
    shown = min(len(advice.groups), MAX_GROUPS)
    bars = 1.5 + 0.42 * shown
    return ReportFigure(
        name,
        "What weights over sites can reach",
        description=f"{'Triangle' if is_triangle else 'Horizontal bars'} of "
        f"{counted(len(advice.groups), 'group')} and {counted(len(advice.sites), 'site')}. "
        f"{answer(advice)}",
        caption=_caption(advice, is_triangle=is_triangle),
        width=5.6 if is_triangle else 8.2,
        height=5.2 if is_triangle else bars,
        narrow_height=3.9 if is_triangle else bars + 0.7,
        draw=lambda figure: (_triangle if is_triangle else _bars)(figure, advice),
        tables=(groups_table(advice),),
    )


def _caption(advice: Advice, *, is_triangle: bool) -> str:
    if is_triangle:
        caption = (
            "Each dot is a site: the closer to a corner, the more of its records are of that "
            "group. A method that is minimax over sites can reach the group weights in the "
            "coloured area, and no others; the cross is the mix of all records."
        )
    else:
        caption = (
            "Bars: each group's largest share of any site's records. A method that is minimax over "
            "sites cannot give the group more weight than that; hatched bars end below one half. "
            "The cross is the group's share of all records."
        )
        hidden = len(advice.groups) - MAX_GROUPS
        if hidden > 0:
            caption += f" {counted(hidden, 'group')} with longer bars: only in the table."
    return caption


def _triangle(figure: "Figure", advice: Advice) -> None:
    from matplotlib.patches import Polygon

    axes = figure.subplots()
    axes.set_aspect("equal")
    axes.set_axis_off()
    axes.add_patch(Polygon(CORNERS, fill=False, edgecolor=INK, linewidth=1.0))
    places = [_place(mix) for mix in advice.mixes]
    area = _hull(places)
    if len(area) > 1:
        axes.add_patch(
            Polygon(area, facecolor=BLUE, edgecolor=BLUE, alpha=0.25, linewidth=2.0, zorder=1)
        )
    _mark(axes, places, SITE)
    if len(places) <= MAX_NAMED_SITES:
        for site, (x, y) in zip(distinct(advice.sites, 14), places, strict=True):
            axes.annotate(site, (x, y), (5, 5), textcoords="offset points", fontsize=8)
    _mark(axes, [_place([group.share for group in advice.groups])], EVERYONE)
    axes.legend(loc="upper right", frameon=False, fontsize=8)
    names = distinct([group.name for group in advice.groups], 16 if is_narrow(figure) else 30)
    for number, (corner, group) in enumerate(zip(CORNERS, names, strict=True)):
        side = "top" if number < 2 else "bottom"
        shift = -6 if number < 2 else 6
        axes.annotate(
            group,
            corner,
            (0, shift),
            textcoords="offset points",
            ha=("left", "right", "center")[number],
            va=side,
            fontweight="bold",
        )
    axes.set_xlim(-0.05, 1.05)
    axes.set_ylim(-0.12, CORNERS[2][1] + 0.1)


def _bars(figure: "Figure", advice: Advice) -> None:
    axes = figure.subplots()
    plain_axes(axes, "x")
    groups = advice.groups
    order = sorted(range(len(groups)), key=lambda a: groups[a].largest_share)[:MAX_GROUPS]
    for line, place in enumerate(order):
        group = groups[place]
        axes.barh(
            line,
            100 * group.largest_share,
            height=0.6,
            color=BLUE,
            alpha=0.75,
            label="most at one site" if line == 0 else None,
            hatch=None if group.largest_share > MOSTLY else HATCH,
        )
        axes.text(101, line, percent(group.largest_share), va="center", fontsize=8)
    shares = [(100 * groups[place].share, float(line)) for line, place in enumerate(order)]
    _mark(axes, shares, EVERYONE)
    figure.legend(loc="outside upper left", ncols=1 if is_narrow(figure) else 3, frameon=False)
    names = distinct([groups[place].name for place in order], 17 if is_narrow(figure) else 34)
    axes.axvline(100, color=FAINT, linewidth=0.8)
    axes.set_yticks(range(len(order)), names)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(order) - 0.4, -0.6)
    axes.set_xlim(-2, 118)
    axes.set_xticks(range(0, 101, 50 if is_narrow(figure) else 25))
    axes.set_xlabel("share in % of a site's records")


def _mark(axes: "Axes", places: Sequence[Point], mark: Mark) -> None:
    axes.scatter(
        [x for x, _ in places],
        [y for _, y in places],
        s=40,
        marker=mark.marker,
        color=mark.colour,
        zorder=4,
        label=mark.label,
    )


def _place(mix: Sequence[float]) -> Point:
    """Return the position of a mix of three groups in the triangle."""
    return (
        sum(share * corner[0] for share, corner in zip(mix, CORNERS, strict=True)),
        sum(share * corner[1] for share, corner in zip(mix, CORNERS, strict=True)),
    )


def _hull(places: Sequence[Point]) -> list[Point]:
    """Return the corners of the convex hull, in order (Andrew's monotone chain, 1979)."""
    points = sorted(set(places))
    if len(points) < 3:
        return points

    def half(ordered: Sequence[Point]) -> list[Point]:
        chain: list[Point] = []
        for point in ordered:
            while len(chain) > 1 and _turn(chain[-2], chain[-1], point) <= 0.0:
                chain.pop()
            chain.append(point)
        return chain[:-1]

    return half(points) + half(points[::-1])


def _turn(first: Point, second: Point, third: Point) -> float:
    return (second[0] - first[0]) * (third[1] - first[1]) - (second[1] - first[1]) * (
        third[0] - first[0]
    )
