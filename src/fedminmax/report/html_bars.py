"""Risk by group as bars with intervals, beside the baseline."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedminmax.core.counted import counted
from fedminmax.report.html_changes import ALL_ROWS, how_sure
from fedminmax.report.html_figure import ReportFigure, is_narrow
from fedminmax.report.html_read_run import Run
from fedminmax.report.html_risk_table import risk_table
from fedminmax.report.html_story import worst_of
from fedminmax.report.html_style import (
    BLUE,
    HATCH,
    INK,
    ORANGE,
    PAPER,
    plain_axes,
    readable_numbers,
)
from fedminmax.report.html_words import (
    decimals_of,
    distinct,
    interval_name,
    number,
    risk_name,
)
from fedminmax.report.mean_interval import MIN_ROWS
from fedminmax.report.run_folder_records import Interval, Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_GROUPS = 30


@dataclass(frozen=True)
class Look:
    """Where the bars of one model stand beside a group's place, and how they are filled."""

    shift: float
    thickness: float
    colour: str
    hatch: str | None = None


def risk_by_group_figure(run: Run, name: str) -> ReportFigure:
    """Describe the figure: the groups that were worst off first, all rows last."""
    results, order = run.chosen.results, _shown_groups(run)
    worst = worst_of(results)
    decimals, interval = decimals_of(results), interval_name(results)
    against = f" and {run.baseline.results.method.name}" if run.baseline else ""
    small = results.test.small_groups(results.groups)
    left_out = len(results.groups) - len(small) - len(order)
    return ReportFigure(
        name,
        f"{risk_name(results)[0].upper()}{risk_name(results)[1:]} by group",
        f"Horizontal bars with intervals for {run.label}{against}, "
        f"{counted(len(order), 'group')} and all rows."
        + (
            f" The highest bar of {run.label} is {worst[0]} with "
            f"{number(worst[1].value, decimals)}."
            if worst
            else ""
        ),
        f"Risk on the test rows; lower is better. Lines are the {interval} of each value: how far "
        "it would move with other test rows of the same group. The group that was worst off was "
        "picked for its high value, part of which is chance where groups are small."
        f"{how_sure(run)}"
        + (f" {counted(left_out, 'group')} with lower risk are in the table only." * bool(left_out))
        + (
            f" The table has {counted(len(small), 'group')} with fewer than {MIN_ROWS} test rows, "
            "or too few training rows, apart at its end." * bool(small)
        ),
        8.2,
        1.3 + 0.5 * (len(order) + 1) * (1 if run.baseline else 0.7),
        1.7 + 0.6 * (len(order) + 1),
        lambda figure: _draw(figure, run, order),
        (risk_table(run),),
    )


def _shown_groups(run: Run) -> list[int]:
    """Order groups of enough rows by what they had under the baseline, the worst off first."""
    risks = (run.baseline or run.chosen).results.risk.by_group
    enough = [number for number, risk in enumerate(risks) if risk.has_enough_rows]
    return sorted(enough, key=lambda number: -(risks[number].value or 0.0))[:MOST_GROUPS]


def _draw(figure: "Figure", run: Run, order: Sequence[int]) -> None:
    axes = figure.subplots()
    plain_axes(axes, "x")
    width = 17 if is_narrow(figure) else 34
    shown = distinct([run.chosen.results.groups[a] for a in order], width)
    names = [
        f"{name}\n{counted(run.chosen.results.risk.by_group[a].rows, 'row')}"
        for name, a in zip(shown, order, strict=True)
    ]
    rows = counted(run.chosen.results.test.rows, "row")
    if run.baseline is None:
        _bars(axes, run.chosen.results, order, Look(0.0, 0.6, BLUE))
    else:
        before, after = run.baseline.results, run.chosen.results
        _bars(axes, before, order, Look(-0.2, 0.38, ORANGE, HATCH))
        _bars(axes, after, order, Look(0.2, 0.38, BLUE))
        columns = 1 if is_narrow(figure) else 2
        figure.legend(loc="outside upper left", ncols=columns, frameon=False)
    axes.axhline(len(order) - 0.5, color=INK, linewidth=0.8)
    axes.set_yticks(range(len(order) + 1), [*names, f"{ALL_ROWS}\n{rows}"])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(order) + 0.6, -0.6)
    axes.set_xlim(left=0)
    readable_numbers(axes.xaxis, axes.get_xlim()[1])
    axes.locator_params(axis="x", nbins=3 if is_narrow(figure) else 8)
    axes.set_xlabel(f"{risk_name(run.chosen.results)} on test rows")


def _bars(axes: "Axes", results: Results, order: Sequence[int], look: Look) -> None:
    """Draw a bar for each group and one for all rows; nothing where there is no value."""
    risks: list[Interval] = [*(results.risk.by_group[a] for a in order), results.risk.overall]
    known = [(place, risk) for place, risk in enumerate(risks) if risk.value is not None]
    values = [risk.value or 0.0 for _, risk in known]
    axes.barh(
        [place + look.shift for place, _ in known],
        values,
        look.thickness,
        color=look.colour,
        hatch=look.hatch,
        edgecolor=INK,
        linewidth=0.8,
        label=results.method.name,
    )
    for place, risk in known:
        if risk.low is not None and risk.high is not None:
            ends, level = [risk.low, risk.high], [place + look.shift] * 2
            # A pale edge, so that the line is seen on any bar.
            axes.plot(ends, level, color=PAPER, lw=3.6, solid_capstyle="butt")
            axes.plot(ends, level, color=INK, marker="|", markersize=7, lw=1.3)
