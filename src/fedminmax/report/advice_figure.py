"""A figure of the most weight that weights over sites can give to each group."""

from typing import TYPE_CHECKING

from fedminmax.advice.counts import MOSTLY, Advice
from fedminmax.core.text import counted, percent
from fedminmax.findings.advice import answer, groups_table
from fedminmax.findings.changes import EVERYONE
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
    from matplotlib.figure import Figure

MAX_GROUPS = 30


def mixes_figure(advice: Advice, name: str) -> ReportFigure:
    """Describe the figure: the most weight that each group can get."""
    height = 1.5 + 0.42 * min(len(advice.groups), MAX_GROUPS)
    hidden = len(advice.groups) - MAX_GROUPS
    caption = (
        "Bars: each group's largest share of any site's records. A method that is minimax over "
        "sites cannot give the group more weight than that; hatched bars end below one half. The "
        "cross is the group's share of all records."
    )
    if hidden > 0:
        caption += f" {counted(hidden, 'group')} with longer bars: only in the table."
    return ReportFigure(
        name,
        "What weights over sites can reach",
        description=f"Horizontal bars of {counted(len(advice.groups), 'group')} and "
        f"{counted(len(advice.sites), 'site')}. {answer(advice)}",
        caption=caption,
        width=8.2,
        height=height,
        narrow_height=height + 0.7,
        draw=lambda figure: _bars(figure, advice),
        tables=(groups_table(advice),),
    )


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
    shares = [100 * groups[place].share for place in order]
    axes.scatter(shares, range(len(order)), s=40, marker="x", color=INK, zorder=4, label=EVERYONE)
    figure.legend(loc="outside upper left", ncols=1 if is_narrow(figure) else 3, frameon=False)
    names = distinct([groups[place].name for place in order], 17 if is_narrow(figure) else 34)
    axes.axvline(100, color=FAINT, linewidth=0.8)
    axes.set_yticks(range(len(order)), names)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(order) - 0.4, -0.6)
    axes.set_xlim(-2, 118)
    axes.set_xticks(range(0, 101, 50 if is_narrow(figure) else 25))
    axes.set_xlabel("share in % of a site's records")
