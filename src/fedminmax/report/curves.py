"""Risks and weights over rounds: has training converged, and which groups had weight?

Every run, finished or not, has a panel of risks on training rows. Validation risks and weights, if
any, have their own panels.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from itertools import chain
from textwrap import fill
from typing import TYPE_CHECKING

from fedminmax.core.iterates import Iterate
from fedminmax.core.text import counted
from fedminmax.findings.records import RiskAfterRound
from fedminmax.findings.tables import Table
from fedminmax.findings.text import LOSS_NAMES, NOTHING, decimals_of, number
from fedminmax.findings.training import risk_with_error
from fedminmax.report.read_run import Run
from fedminmax.report.style import (
    FAINT,
    INK,
    MAX_SERIES,
    STANDARD,
    ReportFigure,
    SeriesStyle,
    distinct,
    is_narrow,
    plain_axes,
    readable_numbers,
    series_style,
)
from fedminmax.training.round_record import RoundRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_LINES_OF_TABLE = 20
WEIGHT_DECIMALS = 3
MAX_POINTS = 300
MARKERS_ON_A_LINE = 6
# Of a name at the end of a line: characters, and the height of a line of it in that of the panel.
LABEL_WIDTH, LINE_HEIGHT = 26, 0.1
MIN_LABELLED = 0.01
# Use a log scale if the ratio of risks is larger: a linear one would flatten the later rounds.
MAX_LINEAR_RATIO = 20.0


@dataclass(frozen=True)
class Curves:
    """What the figure shows of a run; there is at least one round.

    ``risk`` is the name of what training minimises, which may be another risk than that of test
    rows. ``chosen`` is the model that validation rows chose, or, if not
    ``is_answer``, would have chosen. ``shares_weight`` means that the weights shown sum to 1.
    A group's style depends on its share of ``group_rows``, so that it looks the same everywhere.
    With ``keeps_styles`` the largest groups are named, whatever their risk, so that lines do not
    change their looks while rounds come.
    """

    label: str
    rounds: Sequence[RoundRecord]
    _: KW_ONLY
    groups: tuple[str, ...]
    sites: tuple[str, ...]
    risk: str
    decimals: int
    group_rows: tuple[int, ...] = ()
    baseline: tuple[str, float] | None = None
    chosen: RiskAfterRound | None = None
    is_answer: bool = False
    shares_weight: bool = True
    keeps_styles: bool = False


def curves_of(run: Run) -> Curves:
    """Return what the figure shows of a finished run; of the baseline, the worst last risk."""
    results, baseline = run.chosen.results, run.baseline
    level = max(risk or 0.0 for risk in baseline.rounds[-1].risks) if baseline else 0.0
    validation = results.validation
    return Curves(
        run.label,
        run.chosen.rounds,
        groups=results.groups,
        group_rows=run.trained_rows,
        sites=run.census.sites,
        risk=LOSS_NAMES[results.loss],
        decimals=decimals_of(results),
        baseline=(baseline.results.method.name, level) if baseline else None,
        chosen=validation.chosen if validation else None,
        is_answer=results.iterate == Iterate.BEST.value,
    )


def by_rows(rows: Sequence[int]) -> tuple[int, ...]:
    """Return the groups by their training rows, the largest first, which decides how one looks."""
    return tuple(sorted(range(len(rows)), key=lambda group: -rows[group]))


@dataclass(frozen=True)
class Panel:
    """Curves over rounds: ``named`` ones have these ``styles``; the others are grey.

    ``risks``: whether the values are risks rather than weights.
    """

    title: str
    _: KW_ONLY
    names: tuple[str, ...]
    named: tuple[int, ...]
    styles: tuple[int, ...]
    values: Callable[[RoundRecord], tuple[float | None, ...]]
    decimals: int
    risks: bool = True


def panels_of(run: Curves) -> list[Panel]:
    """Return the panel of risks, and panels of validation risks and weights if there are any.

    Weights that belong neither to groups nor to sites have no panel.
    """
    groups, last = run.groups, run.rounds[-1]
    names = {"groups": groups, "sites": run.sites}.get(last.weights_over, ())
    by_group = last.weights_over == "groups" and len(last.weights) == len(groups)
    largest = by_rows(run.group_rows or (0,) * len(groups))
    order = _highest(last.risks, last.weights if by_group else ())
    if run.keeps_styles:
        order = largest[:MAX_SERIES]
    order = tuple(sorted(order, key=largest.index))
    styles = _styles(order, largest)
    risks = partial(Panel, names=groups, named=order, styles=styles, decimals=run.decimals)
    panels = [risks("risk by group on training records", values=lambda line: line.risks)]
    if any(line.validation_risks for line in run.rounds):
        title = "risk by group on validation records"
        panels.append(risks(title, values=lambda line: line.validation_risks))
    if last.weights and len(last.weights) == len(names):
        # Groups keep their styles from the panel above.
        chosen = order if by_group else _highest(last.weights)
        title = f"weight by {last.weights_over.removesuffix('s')}"
        panels.append(
            Panel(
                title,
                names=names,
                named=chosen,
                styles=styles if by_group else tuple(range(len(chosen))),
                values=lambda line: line.weights,
                decimals=WEIGHT_DECIMALS,
                risks=False,
            )
        )
    return panels


def _styles(named: Sequence[int], largest: Sequence[int]) -> tuple[int, ...]:
    """Return the styles of named groups: the largest keep theirs, others have what is left."""
    own = {group: place for place, group in enumerate(largest[:MAX_SERIES]) if group in named}
    free = iter([place for place in range(MAX_SERIES) if place not in own.values()])
    return tuple(own[group] if group in own else next(free) for group in named)


def _highest(*columns: Sequence[float | None]) -> tuple[int, ...]:
    """Return the highest of each column in turn, then the second highest, and so on."""
    ranked = [
        sorted(range(len(column)), key=lambda number: -value_at(column, number, -math.inf))
        for column in columns
        if column
    ]
    in_turn = chain.from_iterable(zip(*ranked, strict=True))
    return tuple(dict.fromkeys(in_turn))[:MAX_SERIES]


def value_at(values: Sequence[float | None], number: int, otherwise: float = math.nan) -> float:
    """Return a value; if there is none, NaN by default, which is drawn as a gap."""
    value = values[number] if number < len(values) else None
    return otherwise if value is None else value


def thinned(rounds: Sequence[RoundRecord], max_rounds: int) -> list[RoundRecord]:
    """Keep the first, the last and evenly spaced rounds between them."""
    if len(rounds) <= max_rounds:
        return list(rounds)
    return [rounds[place * (len(rounds) - 1) // (max_rounds - 1)] for place in range(max_rounds)]


def panel_table(run: Curves, panel: Panel) -> Table:
    """Return a table of a panel's values at some rounds."""
    lines = thinned(run.rounds, MAX_LINES_OF_TABLE)
    return Table(
        f"{panel.title} at {counted(len(lines), 'round')}; all are in rounds.jsonl",
        ("Round", *panel.names),
        tuple(
            (
                str(line.round),
                *(_cell(panel, line, place) for place in range(len(panel.names))),
            )
            for line in lines
        ),
    )


def _cell(panel: Panel, line: RoundRecord, place: int) -> str:
    value = value_at(panel.values(line), place)
    return NOTHING if math.isnan(value) else number(value, panel.decimals)


def rounds_figure(run: Curves, name: str) -> ReportFigure:
    """Describe the figure: risks on training rows and on validation rows, then weights."""
    rounds, panels = run.rounds, panels_of(run)
    weighted = not panels[-1].risks
    weights = f" and weight by {rounds[-1].weights_over.removesuffix('s')}" * weighted
    return ReportFigure(
        name,
        f"Risk by group{weights} over rounds",
        description=f"Lines over {counted(rounds[-1].round, 'round')} of {run.label}: "
        + ". Below: ".join(panel.title for panel in panels)
        + "."
        + _chosen_text(run),
        caption=_caption(run, panels) + _grey_text(panels, largest=run.keeps_styles),
        width=8.2,
        height=3.2 + 2.2 * (len(panels) - 1),
        narrow_height=3.2
        + 2.0 * (len(panels) - 1)
        + 0.2 * sum(len(own.named) + 2 for own in panels),
        draw=lambda figure: _draw(figure, run, panels),
        tables=tuple(panel_table(run, panel) for panel in panels),
    )


def _caption(run: Curves, panels: Sequence[Panel]) -> str:
    caption = f"Top: {run.risk} of each group on the training records, as the server saw it."
    if run.baseline:
        caption += f" Dotted: the worst group's last risk with {run.baseline[0]}."
    if len(panels) > 1 and panels[1].risks:
        caption += (
            " Below it: the same on validation records, which training does not use. A round's "
            f"risks are those of the model at its start.{_chosen_text(run)}"
        )
    if panels[-1].risks:
        return f"{caption} {run.label} has no weights over groups or sites."
    whole = "; weights sum to 1" if run.shares_weight else ""
    return f"{caption} Bottom: the weight that the method gave to each{whole}."


def _chosen_text(run: Curves) -> str:
    """Say which model the vertical line marks, also for a screen reader."""
    chosen = run.chosen
    if chosen is None:
        return ""
    return (
        f" The vertical line marks the model after round {chosen.round:,}, which validation "
        f"records {'chose' if run.is_answer else 'would have chosen'}: its validation risk is "
        f"{risk_with_error(chosen)}."
    )


def _legends(panels: Sequence[Panel]) -> list[Panel]:
    """Return the panels that need a legend: those whose lines no earlier panel names."""
    return [
        panel
        for place, panel in enumerate(panels)
        if not any((own.names, own.named) == (panel.names, panel.named) for own in panels[:place])
    ]


def _grey_text(panels: Sequence[Panel], *, largest: bool) -> str:
    if all(len(panel.named) == len(panel.names) for panel in panels):
        return ""
    which = "largest" if largest else "highest at the end"
    return f" The {MAX_SERIES} lines that are {which} are labelled; the others are grey."


def _draw(figure: "Figure", run: Curves, panels: Sequence[Panel]) -> None:
    lines, chosen = thinned(run.rounds, MAX_POINTS), run.chosen
    marked = f"model after round {chosen.round:,}" if chosen else ""
    all_axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    if run.baseline is not None:
        name, level = run.baseline
        label = f"worst group, {name}"
        all_axes[0].axhline(level, color=STANDARD, linestyle=":", linewidth=1.8, label=label)
    for axes, panel in zip(all_axes, panels, strict=True):
        plain_axes(axes, "y")
        _curves(axes, panel, lines)
        axes.set_title(panel.title)
        if chosen is not None:
            # Its risks are shown at the next round, which started from this model.
            axes.axvline(chosen.round + 1, color=INK, linewidth=1.0, label=marked, zorder=1)
        if panel.risks:
            drawn = [value for line in lines for value in panel.values(line)]
            _choose_scale(axes, [value for value in drawn if value is not None])
        else:
            # Show a weight of 0 above the axis, not on it.
            axes.set_ylim(bottom=-0.02)
        if not is_narrow(figure):
            if chosen is not None and axes is all_axes[0]:
                axes.annotate(
                    marked,
                    (chosen.round + 1, 0.03),
                    (4, 0),
                    xycoords=("data", "axes fraction"),
                    textcoords="offset points",
                    fontsize=8.5,
                )
            above = [run.baseline] if run.baseline is not None and axes is all_axes[0] else []
            _label_ends(axes, panel, lines[-1], above)
        elif panel in _legends(panels):
            # Handles must be long enough for a whole dash pattern.
            below = (-0.05, -0.18)
            axes.legend(loc="upper left", bbox_to_anchor=below, frameon=False, handlelength=3.6)
    all_axes[-1].set_xlabel("round")


def _curves(axes: "Axes", panel: Panel, lines: Sequence[RoundRecord]) -> None:
    rounds = [line.round for line in lines]
    every = max(1, len(lines) // MARKERS_ON_A_LINE)
    names = distinct([panel.names[index] for index in panel.named], 26)
    for place, index in enumerate(panel.named):
        style = series_style(panel.styles[place])
        axes.plot(
            rounds,
            [value_at(panel.values(line), index) for line in lines],
            color=style.colour,
            linestyle=style.dash,
            marker=style.marker,
            # Offset each line's markers, so that they do not cover each other.
            markevery=(place * every // MAX_SERIES, every),
            markersize=5,
            linewidth=1.6,
            label=names[place],
        )
    others = [index for index in range(len(panel.names)) if index not in panel.named]
    for index in others:
        values = [value_at(panel.values(line), index) for line in lines]
        label = "others" if index == others[0] else None
        axes.plot(rounds, values, color=FAINT, linewidth=0.9, zorder=1, label=label)


def _label_ends(
    axes: "Axes", panel: Panel, last: RoundRecord, levels: Sequence[tuple[str, float]]
) -> None:
    """Write each line's name at its end, as far below the next one as it needs."""
    values = panel.values(last)
    ends = [
        (value_at(values, index), panel.names[index], series_style(style))
        for index, style in zip(panel.named, panel.styles, strict=True)
    ]
    ends += [
        (level, f"worst group, {name}", SeriesStyle(STANDARD, ":", "")) for name, level in levels
    ]
    shown = [
        (_height(axes, value), fill(name, LABEL_WIDTH), style)
        for value, name, style in ends
        if not math.isnan(value) and (panel.risks or value >= MIN_LABELLED)
    ]
    below = 2.0
    for height, text, style in sorted(shown, key=lambda end: -end[0]):
        tall = LINE_HEIGHT * (1 + text.count("\n"))
        place = min(height, below - tall / 2)
        below = place - tall / 2
        axes.plot(
            [1.005, 1.035],
            [height, place],
            transform=axes.transAxes,
            color=style.colour,
            linestyle=style.dash,
            linewidth=1.4,
            clip_on=False,
        )
        axes.annotate(text, (1.045, place), xycoords="axes fraction", va="center", fontsize=8.5)


def _height(axes: "Axes", value: float) -> float:
    """Return where a value is, as a share of the height of the axes."""
    _, place = axes.transAxes.inverted().transform(axes.transData.transform((0.0, value)))
    return float(place)


def _choose_scale(axes: "Axes", risks: Sequence[float]) -> None:
    if min(risks, default=0.0) <= 0 or max(risks) < MAX_LINEAR_RATIO * min(risks):
        axes.set_ylim(0, 1.05 * axes.get_ylim()[1])
        readable_numbers(axes.yaxis, axes.get_ylim()[1])
        return
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    readable_numbers(axes.yaxis, max(risks))
