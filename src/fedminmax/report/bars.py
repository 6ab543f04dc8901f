"""Risk by group beside the baseline: a figure of bars with intervals, and a table of numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedminmax.core.text import counted
from fedminmax.findings.changes import EVERYONE, worst_of
from fedminmax.findings.records import Interval, Results
from fedminmax.findings.tables import risk_table
from fedminmax.findings.text import capitalised, decimals_of, interval_name, number, risk_name
from fedminmax.metrics.intervals import MIN_ROWS
from fedminmax.report import style
from fedminmax.report.read_run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_GROUPS = 30
RECORD_BY_RECORD = (
    " The interval of a change is that of the differences record by record; all of them hold at "
    "once."
)


@dataclass(frozen=True)
class Look:
    """The position of one model's bars relative to the group's, and their fill."""

    shift: float
    thickness: float
    colour: str
    hatch: str | None = None


def risk_by_group_figure(run: Run, name: str) -> style.ReportFigure:
    """Describe the figure: the worst-off groups first, all rows last."""
    results, order = run.chosen.results, _shown_groups(run)
    worst = worst_of(results)
    decimals, interval = decimals_of(results), interval_name(results.test)
    against = f" and {run.baseline.results.method.name}" if run.baseline else ""
    small = results.test.small_groups(results.groups)
    hidden = len(results.groups) - len(small) - len(order)
    return style.ReportFigure(
        name,
        f"{capitalised(risk_name(results))} by group",
        description=f"Horizontal bars with intervals for {run.label}{against}, "
        f"{counted(len(order), 'group')} and all records."
        + (
            f" The highest bar of {run.label} is {worst[0]} with "
            f"{number(worst[1].value, decimals)}."
            if worst
            else ""
        ),
        caption=f"Risk on the test records; lower is better. Lines are the {interval} of each "
        "value: how far it would move with other test records of the same group. The "
        "worst-off group was selected for its high value, which in small groups is partly chance."
        f"{RECORD_BY_RECORD * bool(run.baseline)}"
        + (f" {counted(hidden, 'group')} with lower risk: only in the table." * bool(hidden))
        + (
            f" {counted(len(small), 'group')} with fewer than {MIN_ROWS} test records, or too few "
            "training records: only at the end of the table." * bool(small)
        ),
        width=8.2,
        height=1.3 + 0.5 * (len(order) + 1) * (1 if run.baseline else 0.7),
        narrow_height=1.7 + 0.6 * (len(order) + 1),
        draw=lambda figure: _draw(figure, run, order),
        tables=(risk_table(results, run.baseline.results if run.baseline else None),),
    )


def _shown_groups(run: Run) -> list[int]:
    """Order groups with enough rows by their risk under the baseline, the worst off first."""
    risks = (run.baseline or run.chosen).results.risk.by_group
    enough = [number for number, risk in enumerate(risks) if risk.has_enough_rows]
    return sorted(enough, key=lambda number: -(risks[number].value or 0.0))[:MAX_GROUPS]


def _draw(figure: "Figure", run: Run, order: Sequence[int]) -> None:
    axes = figure.subplots()
    style.plain_axes(axes, "x")
    width = 17 if style.is_narrow(figure) else 34
    shown = style.distinct([run.chosen.results.groups[a] for a in order], width)
    names = [
        f"{name}\n{counted(run.chosen.results.risk.by_group[a].rows, 'record')}"
        for name, a in zip(shown, order, strict=True)
    ]
    rows = counted(run.chosen.results.test.rows, "record")
    if run.baseline is None:
        _bars(axes, run.chosen.results, order, Look(0.0, 0.6, style.BLUE))
    else:
        before, after = run.baseline.results, run.chosen.results
        _bars(axes, before, order, Look(-0.2, 0.38, style.ORANGE, style.HATCH))
        _bars(axes, after, order, Look(0.2, 0.38, style.BLUE))
        columns = 1 if style.is_narrow(figure) else 2
        figure.legend(loc="outside upper left", ncols=columns, frameon=False)
    axes.axhline(len(order) - 0.5, color=style.INK, linewidth=0.8)
    axes.set_yticks(range(len(order) + 1), [*names, f"{EVERYONE}\n{rows}"])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(order) + 0.6, -0.6)
    axes.set_xlim(left=0)
    style.readable_numbers(axes.xaxis, axes.get_xlim()[1])
    axes.locator_params(axis="x", nbins=3 if style.is_narrow(figure) else 8)
    axes.set_xlabel(f"{risk_name(run.chosen.results)} on test records")


def _bars(axes: "Axes", results: Results, order: Sequence[int], look: Look) -> None:
    """Draw a bar for each group and one for all rows; none if there is no value."""
    risks: list[Interval] = [*(results.risk.by_group[a] for a in order), results.risk.overall]
    known = [(place, risk) for place, risk in enumerate(risks) if risk.value is not None]
    values = [risk.value or 0.0 for _, risk in known]
    axes.barh(
        [place + look.shift for place, _ in known],
        values,
        look.thickness,
        color=look.colour,
        hatch=look.hatch,
        edgecolor=style.INK,
        linewidth=0.8,
        label=results.method.name,
    )
    for place, risk in known:
        if risk.low is not None and risk.high is not None:
            ends, level = [risk.low, risk.high], [place + look.shift] * 2
            # A pale edge, so that the line is visible on any bar.
            axes.plot(ends, level, color=style.PAPER, lw=3.6, solid_capstyle="butt")
            axes.plot(ends, level, color=style.INK, marker="|", markersize=7, lw=1.3)
