"""How one effect of an additive model is drawn: steps of bins, bars of categories, cells of a pair.

Steps are drawn to scale where that shows them all; otherwise all bins are equally wide. Coarse
cells of a pair have names that a reader knows: where a number begins, or its commonest category.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedminmax.data.tables.plain_fit import MIN_SHOWN, Departure
from fedminmax.exports.effects import Axis, Effect
from fedminmax.report.style import (
    BLUE,
    INK,
    MINIMAX,
    VERMILLION,
    SeriesStyle,
    distinct,
    is_narrow,
    plain_axes,
    readable_numbers,
    series_style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis as TickAxis
    from matplotlib.figure import Figure

Numbers = NDArray[np.float64]
MAX_BARS = 12
ERRORS = 1.96
# Steps are drawn to scale unless one gap between edges is this part of their range.
MAX_GAP = 0.35
LEVELS = 10
# One model's effects are in its colour.
MODEL = SeriesStyle(MINIMAX, "-", "o")


def widest(effect: Effect) -> int:
    """Return the score whose effects differ most."""
    spreads = [np.average(np.square(values), weights=_weights(effect)) for values in effect.values]
    return int(np.argmax(spreads))


def _weights(effect: Effect) -> Numbers:
    counts = np.array(effect.counts, dtype=float)
    return counts if counts.sum() else np.ones_like(counts)


def draw_effect(
    figure: "Figure",
    effect: Effect,
    scores: Sequence[str],
    main: Mapping[str, Effect],
    departures: Sequence[Departure] = (),
    places: Mapping[str, int] | None = None,
) -> None:
    """Draw one effect and the levels of groups that differ; ``main`` are those of one column.

    A group looks as in every figure: by its place among all groups.
    """
    axes = figure.subplots()
    if len(effect.axes) == 2:
        _draw_cells(figure, axes, effect, main)
    elif effect.axes[0].is_number:
        _draw_steps(axes, effect, scores)
    else:
        _draw_bars(axes, effect, scores)
    for number, departure in enumerate(departures, 1):
        style = series_style((places or {}).get(departure.group, number))
        _draw_departure(axes, effect, departure, number, style)
    lines = len(scores) if len(scores) > 1 else len(departures)
    if lines and len(effect.axes) == 1:
        columns = 1 if is_narrow(figure) else min(lines, 4)
        figure.legend(loc="outside upper left", ncols=columns, frameon=False)


def _draw_steps(axes: "Axes", effect: Effect, scores: Sequence[str]) -> None:
    axis = effect.axes[0]
    plain_axes(axes, "y")
    bounds, to_scale = _bounds(axis)
    bins = len(axis.edges) + 1
    shown = np.array(effect.counts[:bins]) > 0
    axes.axhline(0.0, color=INK, linewidth=0.8)
    gap = 0.05 * (bounds[-1] - bounds[0])
    for number, values in enumerate(effect.values):
        style = series_style(number) if len(scores) > 1 else MODEL
        levels = np.where(shown, values[:bins], np.nan)
        steps = np.append(levels, levels[-1])
        axes.step(bounds, steps, where="post", color=style.colour, linestyle=style.dash, lw=1.8)
        if len(scores) > 1:
            axes.plot([], [], color=style.colour, ls=style.dash, lw=1.8, label=scores[number])
        if len(scores) == 1:
            error = np.append(effect.errors[0][:bins], effect.errors[0][bins - 1])
            axes.fill_between(
                bounds, steps - error, steps + error, step="post", color=MINIMAX, alpha=0.22, lw=0
            )
        if axis.has_missing and effect.counts[bins]:
            error_there = effect.errors[number][bins] if len(scores) == 1 else 0.0
            axes.errorbar(
                [bounds[-1] + gap],
                [values[bins]],
                yerr=[error_there],
                color=style.colour,
                marker=style.marker,
                capsize=3,
            )
            axes.annotate(
                "missing", (bounds[-1] + gap, values[bins]), (6, 4), textcoords="offset points"
            )
    axes.set_ylabel("effect")
    _label_values(axes, axis, bounds, shown, to_scale=to_scale)


def level_of(effect: Effect, departure: Departure, cell: int) -> float:
    """Return a group's own level in a cell of codes."""
    return bar_of(effect, departure.cells[cell], "").values[0] + departure.shifts[cell]


def _draw_departure(
    axes: "Axes", effect: Effect, departure: Departure, number: int, style: SeriesStyle
) -> None:
    """Draw a group's own levels as points with intervals, beside steps or bars."""
    axis = effect.axes[0]
    cells, across = range(len(departure.cells)), not axis.is_number
    places: dict[int, float] = {}
    if axis.is_number:
        bounds, _ = _bounds(axis)
        for cell, codes in enumerate(departure.cells):
            if codes[-1] <= len(axis.edges):
                places[cell] = float(bounds[codes[0]] + bounds[codes[-1] + 1]) / 2
    else:
        lines = {bar.label: line for line, bar in enumerate(bars_of(effect))}
        for cell, codes in enumerate(departure.cells):
            if len(codes) == 1 and axis.labels[codes[0]] in lines:
                places[cell] = lines[axis.labels[codes[0]]] + 0.12 * number
    shown = [cell for cell in cells if cell in places]
    levels = [level_of(effect, departure, cell) for cell in shown]
    errors = [ERRORS * departure.errors[cell] for cell in shown]
    positions = [places[cell] for cell in shown]
    axes.errorbar(
        levels if across else positions,
        positions if across else levels,
        xerr=errors if across else None,
        yerr=None if across else errors,
        color=style.colour,
        marker=style.marker,
        capsize=2,
        linestyle="none",
        label=departure.group,
    )


def _bounds(axis: Axis) -> tuple[Numbers, bool]:
    """Return where bins begin and end, and whether that is to scale."""
    edges = np.array(axis.edges)
    gaps = np.diff(edges)
    width = edges[-1] - edges[0]
    if len(edges) > 2 and gaps.max() <= MAX_GAP * width:
        margin = float(np.median(gaps))
        return np.array([edges[0] - margin, *edges, edges[-1] + margin]), True
    return np.arange(len(edges) + 2.0), False


def _label_values(
    axes: "Axes", axis: Axis, bounds: Numbers, shown: NDArray[np.bool_], *, to_scale: bool
) -> None:
    narrow = is_narrow(axes.figure)  # type: ignore[arg-type]
    if to_scale:
        axes.set_xlabel(axis.column)
        axes.locator_params(axis="x", nbins=4 if narrow else 8)
        if axis.is_date:
            axes.xaxis.set_major_formatter(lambda value, _: _day(value))
        else:
            readable_numbers(axes.xaxis, float(np.abs(bounds).max()))
        return
    # An edge is named between bins that many records have.
    usable = [n for n in range(len(axis.edges)) if shown[n] and shown[n + 1]]
    wanted = min(len(usable), 4 if narrow else 9)
    positions = np.unique(np.linspace(0, len(usable) - 1, wanted).round().astype(int))
    ticks = [usable[position] for position in positions] if usable else []
    axes.set_xticks(
        [bounds[n + 1] for n in ticks], [value_text(axis, axis.edges[n]) for n in ticks]
    )
    axes.set_xlabel(f"{axis.column} (bins of equal width)")


def value_text(axis: Axis, value: float) -> str:
    """Write a number, or a date."""
    return _day(value) if axis.is_date else f"{value:,.6g}"


def _day(days: float) -> str:
    try:
        return (date(1970, 1, 1) + timedelta(days=days)).isoformat()
    except OverflowError:
        return f"{days:g}"


@dataclass(frozen=True)
class Bar:
    """One line of numbers: a code, or several together."""

    label: str
    values: tuple[float, ...]
    errors: tuple[float, ...]
    count: float


def bar_of(effect: Effect, codes: Sequence[int], label: str) -> Bar:
    """Return the mean of some codes over their records."""
    counts = [effect.counts[code] for code in codes]
    weights = counts if sum(counts) else None
    values, errors = (
        tuple(
            float(np.average([by_code[code] for code in codes], weights=weights))
            for by_code in numbers
        )
        for numbers in (effect.values, effect.errors)
    )
    return Bar(label, values, errors, sum(counts))


def bars_of(effect: Effect) -> list[Bar]:
    """Return the most frequent categories in the order of their effects, then the others."""
    codes = [code for code, count in enumerate(effect.counts) if count]
    often = [code for code in codes if effect.counts[code] >= MIN_SHOWN]
    frequent = sorted(often, key=lambda code: -effect.counts[code])[:MAX_BARS]
    ordered = sorted(frequent, key=lambda code: -effect.values[0][code])
    bars = [bar_of(effect, [code], effect.axes[0].labels[code]) for code in ordered]
    rest = [code for code in codes if code not in frequent]
    if rest:
        bars.append(bar_of(effect, rest, f"{len(rest)} others, mean"))
    return bars


def _draw_bars(axes: "Axes", effect: Effect, scores: Sequence[str]) -> None:
    plain_axes(axes, "x")
    bars = bars_of(effect)
    thickness = 0.7 / len(scores)
    for number, score in enumerate(scores):
        style = series_style(number) if len(scores) > 1 else MODEL
        shift = (number - (len(scores) - 1) / 2) * thickness
        axes.barh(
            [line + shift for line in range(len(bars))],
            [bar.values[number] for bar in bars],
            thickness,
            xerr=[bar.errors[number] for bar in bars] if len(scores) == 1 else None,
            color=style.colour,
            ecolor=INK,
            edgecolor=INK,
            linewidth=0.6,
            capsize=3,
            label=score if len(scores) > 1 else None,
        )
    axes.axvline(0.0, color=INK, linewidth=0.8)
    width = 17 if is_narrow(axes.figure) else 34  # type: ignore[arg-type]
    axes.set_yticks(range(len(bars)), distinct([bar.label for bar in bars], width))
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xlabel("effect")


def _draw_cells(figure: "Figure", axes: "Axes", effect: Effect, main: Mapping[str, Effect]) -> None:
    from matplotlib.colors import BoundaryNorm, LinearSegmentedColormap

    heights, widths = (1 + max(cells) for cells in effect.cells)
    values = np.array(effect.values[widest(effect)]).reshape(heights, widths)
    counted = np.array(effect.counts).reshape(heights, widths) > 0
    top = float(np.abs(values[counted]).max()) if counted.any() else 0.0
    levels = np.linspace(-(top or 1.0), top or 1.0, LEVELS + 1)
    colours = LinearSegmentedColormap.from_list("effects", [BLUE, "#f2f2f2", VERMILLION])
    mesh = axes.pcolormesh(
        np.ma.masked_array(values, ~counted),
        cmap=colours,
        norm=BoundaryNorm(levels, colours.N),
        edgecolors="face",
        linewidth=0.3,
    )
    figure.colorbar(mesh, ax=axes, label="effect", ticks=levels[::5], format="%.2g")
    narrow = is_narrow(figure)
    for axis, cells, ticks in zip(effect.axes, effect.cells, (axes.yaxis, axes.xaxis), strict=True):
        _label_cells(ticks, axis, cells, main.get(axis.column), narrow=narrow)
    axes.set_ylabel(effect.axes[0].column)
    axes.set_xlabel(effect.axes[1].column)
    if widths > 4:
        axes.tick_params(axis="x", rotation=45)


def _label_cells(
    ticks: "TickAxis",
    axis: Axis,
    cells: Sequence[int],
    main: Effect | None,
    *,
    narrow: bool,
) -> None:
    names = distinct(cell_names(axis, cells, main), 12 if narrow else 18)
    every = 2 if narrow and len(names) > 6 else 1
    positions = np.arange(len(names)) + 0.5
    ticks.set_ticks(positions[::every], names[::every])


def cell_names(axis: Axis, cells: Sequence[int], main: Effect | None) -> list[str]:
    """Name each coarse cell: a number's by where it begins, a category's by its commonest value."""
    names = []
    for cell in range(1 + max(cells)):
        codes = [code for code, other in enumerate(cells) if other == cell]
        if not axis.is_number:
            counts = main.counts if main else (1,) * len(cells)
            commonest = max(codes, key=lambda code: counts[code])
            more = f" +{len(codes) - 1}" if len(codes) > 1 else ""
            names.append(f"{axis.labels[commonest]}{more}")
        else:
            names.append(_bins_name(axis, codes))
    return names


def _bins_name(axis: Axis, codes: Sequence[int]) -> str:
    bins = [code for code in codes if code <= len(axis.edges)]
    missing = ["missing"] if len(bins) < len(codes) else []
    if not bins:
        return missing[0]
    if bins[0]:
        begin = f"from {value_text(axis, axis.edges[bins[0] - 1])}"
    else:
        begin = f"below {value_text(axis, axis.edges[min(bins[-1], len(axis.edges) - 1)])}"
    return ", ".join([begin, *missing])
