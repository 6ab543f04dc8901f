"""Training rows by site and group, as a heat map with numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedminmax.core.text import counted
from fedminmax.data.tables.census import CensusFile
from fedminmax.network.wire.plan import ALL_SITES
from fedminmax.report.read_run import Run
from fedminmax.report.style import INK, PAPER, ReportFigure, Table, is_narrow
from fedminmax.report.text import distinct

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_SITES = 60
# Above this, white numbers have more contrast than black ones.
DARK = 0.71


@dataclass(frozen=True)
class Shown:
    """The lines of the map: sites; the smallest of many sites are combined."""

    names: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]


def census_figure(run: Run, name: str) -> ReportFigure:
    """Describe the figure."""
    census = run.census
    shown = _shown(census)
    empty = sum(count == 0 for line in census.train for count in line)
    cells = len(census.sites) * len(census.groups)
    sites, groups = counted(len(census.sites), "site"), counted(len(census.groups), "group")
    return ReportFigure(
        name,
        "Training rows by group, all sites together"
        if census.sites == (ALL_SITES,)
        else "Training rows by site and group",
        description=f"Heat map with numbers, {sites} by {groups}. {empty} of {cells} cells are 0.",
        caption=f"The darker a cell, the more training rows (on a logarithmic scale); {empty} of "
        f"{cells} "
        "cells have no colour: that site has no rows of that group."
        + (
            f" The last line is the sum of the {len(census.sites) - MAX_SITES + 1} smallest sites."
            if len(shown.names) < len(census.sites)
            else ""
        ),
        width=max(4.5, min(11.0, 2.2 + 0.72 * len(census.groups))),
        height=1.6 + 0.27 * len(shown.names),
        narrow_height=1.9 + 0.27 * len(shown.names),
        draw=lambda figure: _draw(figure, shown, census.groups),
        tables=(
            _table("training", _by_site(census, census.train), census.groups),
            _table("test", _by_site(census, census.test) | census.other_tests, census.groups),
        ),
    )


def _shown(census: CensusFile) -> Shown:
    if len(census.sites) <= MAX_SITES:
        return Shown(census.sites, census.train)
    order = sorted(range(len(census.sites)), key=lambda k: -sum(census.train[k]))
    first, rest = sorted(order[: MAX_SITES - 1]), order[MAX_SITES - 1 :]
    together = tuple(sum(column) for column in zip(*(census.train[k] for k in rest), strict=True))
    return Shown(
        (*(census.sites[k] for k in first), f"{len(rest)} smaller sites"),
        (*(census.train[k] for k in first), together),
    )


def _by_site(census: CensusFile, counts: Sequence[tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    return dict(zip(census.sites, counts, strict=True))


def _draw(figure: "Figure", shown: Shown, groups: tuple[str, ...]) -> None:
    import numpy as np
    from matplotlib.colors import LogNorm

    axes = figure.subplots()
    counts = np.array(shown.counts, dtype=float)
    # The palest blue is for a tenth of a row, so that one row is visible on white.
    scale = LogNorm(0.1, max(2.0, float(counts.max())))
    rows = np.ma.masked_equal(counts, 0)
    axes.pcolormesh(rows, norm=scale, cmap="Blues", edgecolors=PAPER, linewidth=1.5)
    # With many groups the numbers are small on a phone; the table below also has them.
    size = max(4.0, min(8.0, 45.0 / len(groups))) if is_narrow(figure) else 8.0
    for line, row in enumerate(shown.counts):
        for column, count in enumerate(row):
            # Not the page's ink on a colour: the cell's colour does not follow the page's theme.
            colour = INK if count == 0 else "white" if scale(count) > DARK else "black"
            place = (column + 0.5, line + 0.5)
            axes.text(*place, f"{count:,}", ha="center", va="center", fontsize=size, color=colour)
    narrow = is_narrow(figure)
    axes.set_xticks(
        [column + 0.5 for column in range(len(groups))],
        distinct(groups, 16 if narrow else 26),
        rotation=60 if narrow else 35,
        ha="left",
        rotation_mode="anchor",
    )
    axes.set_yticks(
        [line + 0.5 for line in range(len(shown.names))],
        distinct(shown.names, 12 if narrow else 26),
    )
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.invert_yaxis()


def _table(part: str, counts: Mapping[str, Sequence[int]], groups: Sequence[str]) -> Table:
    totals = [sum(column) for column in zip(*counts.values(), strict=True)]
    return Table(
        f"{part} rows by site and group",
        ("Site", *groups, "all groups"),
        tuple(
            (site, *(f"{count:,}" for count in line), f"{sum(line):,}")
            for site, line in [*counts.items(), ("all sites", totals)]
        ),
    )
