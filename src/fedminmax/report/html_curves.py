"""Risk and weight over rounds: has training settled, and whom did it attend to?"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedminmax.core.counted import counted
from fedminmax.report.html_figure import ReportFigure, is_narrow
from fedminmax.report.html_panels import Panel, panel_table, panels_of, thinned, value_at
from fedminmax.report.html_read_run import Run, Trained
from fedminmax.report.html_style import (
    FAINT,
    INK,
    MOST_SERIES,
    plain_axes,
    readable_numbers,
    series_style,
)
from fedminmax.report.html_words import distinct, risk_name
from fedminmax.report.round_records import RoundRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_POINTS = 300
MARKERS_ON_A_LINE = 6
# A risk that falls by more than this would press all that follows into a flat line.
WIDEST_LINEAR = 20.0


def rounds_figure(run: Run, name: str) -> ReportFigure:
    """Describe the figure: risks above; below, weights over groups or holders if there are any."""
    results, rounds = run.chosen.results, run.chosen.rounds
    panels = panels_of(run)
    weighted = len(panels) == 2
    weights = f" and weight by {rounds[-1].weights_over.removesuffix('s')}" * weighted
    return ReportFigure(
        name,
        f"Risk by group{weights} over rounds",
        f"Lines over {counted(rounds[-1].round, 'round')} of {run.label}: "
        + ". Below: ".join(panel.title for panel in panels)
        + ".",
        f"Above: {risk_name(results)} of each group on the training rows, as the server saw it."
        + _baseline_words(run.baseline)
        + (
            " Below: how much the method attended to each; weights add up to 1."
            if weighted
            else f" {run.label} has no weights over groups or holders."
        )
        + _grey_words(panels),
        8.2,
        5.4 if weighted else 3.2,
        (5.2 if weighted else 3.2) + 0.2 * sum(len(panel.named) + 2 for panel in panels),
        lambda figure: _draw(figure, run, panels),
        tuple(panel_table(run, panel) for panel in panels),
    )


def _baseline_words(baseline: Trained | None) -> str:
    return f" Dotted: the worst group's last risk with {_name(baseline)}." if baseline else ""


def _grey_words(panels: Sequence[Panel]) -> str:
    if all(len(panel.named) == len(panel.names) for panel in panels):
        return ""
    return f" Named are {MOST_SERIES} that are high at the end, the others are grey."


def _name(trained: Trained) -> str:
    return trained.results.method.name


def _draw(figure: "Figure", run: Run, panels: Sequence[Panel]) -> None:
    lines = thinned(run.chosen.rounds, MOST_POINTS)
    all_axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for axes, panel in zip(all_axes, panels, strict=True):
        plain_axes(axes, "y")
        _curves(axes, panel, lines)
        axes.set_title(panel.title)
    if run.baseline is not None:
        level = max(risk or 0.0 for risk in run.baseline.rounds[-1].risks)
        label = f"worst group, {_name(run.baseline)}"
        all_axes[0].axhline(level, color=INK, linestyle=":", linewidth=1.4, label=label)
    _choose_scale(all_axes[0], [risk for line in lines for risk in line.risks if risk is not None])
    same = len(panels) == 2 and panels[0].named == panels[1].named
    place = (-0.05, -0.18) if is_narrow(figure) else (1.01, 1.02)
    for axes in all_axes[:1] if same else all_axes:
        # Handles are long enough for a whole pattern of dashes.
        axes.legend(loc="upper left", bbox_to_anchor=place, frameon=False, handlelength=3.6)
    if len(panels) == 2:
        # A weight of 0 is seen above the axis, not on it.
        all_axes[1].set_ylim(bottom=-0.02)
    all_axes[-1].set_xlabel("round")


def _curves(axes: "Axes", panel: Panel, lines: Sequence[RoundRecord]) -> None:
    rounds = [line.round for line in lines]
    every = max(1, len(lines) // MARKERS_ON_A_LINE)
    names = distinct([panel.names[number] for number in panel.named], 26)
    for place, number in enumerate(panel.named):
        style = series_style(place)
        axes.plot(
            rounds,
            [value_at(panel.values(line), number) for line in lines],
            color=style.colour,
            linestyle=style.dash,
            marker=style.marker,
            # Each line has its markers elsewhere, so that they do not cover one another.
            markevery=(place * every // MOST_SERIES, every),
            markersize=5,
            linewidth=1.6,
            label=names[place],
        )
    others = [number for number in range(len(panel.names)) if number not in panel.named]
    for number in others:
        values = [value_at(panel.values(line), number) for line in lines]
        label = "others" if number == others[0] else None
        axes.plot(rounds, values, color=FAINT, linewidth=0.9, zorder=1, label=label)


def _choose_scale(axes: "Axes", risks: Sequence[float]) -> None:
    if min(risks, default=0.0) <= 0 or max(risks) < WIDEST_LINEAR * min(risks):
        axes.set_ylim(0, 1.05 * axes.get_ylim()[1])
        readable_numbers(axes.yaxis, axes.get_ylim()[1])
        return
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    readable_numbers(axes.yaxis, max(risks))
