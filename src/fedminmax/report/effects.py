"""What an additive model uses: every effect as a curve, as bars or as a heat map.

The picture is the model itself, not an approximation of it. Bands are two standard errors wide in
either direction, from the plain fit of the same class, times the square root of the design effect
n sum_a w_a^2 / n_a of the groups' weights (Kish: Survey Sampling, 1965): a model that depends on
few records is less certain than a plain one. Codes with fewer than ten training records are left
out: no single record shows.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fedminmax.core.text import listed
from fedminmax.data.tables.plain_fit import MIN_SHOWN, Departure
from fedminmax.exports.effects import Axis, Effect
from fedminmax.findings.tables import Table
from fedminmax.findings.text import MINUS
from fedminmax.methods.card import Weights
from fedminmax.methods.catalogue import CARDS
from fedminmax.report.curves import by_rows
from fedminmax.report.effect_drawings import (
    ERRORS,
    Bar,
    bar_of,
    bars_of,
    cell_names,
    draw_effect,
    level_of,
    value_text,
    widest,
)
from fedminmax.report.read_run import Run
from fedminmax.report.style import ReportFigure

MAX_SHOWN, MAX_DRAWN = 8, 20


@dataclass(frozen=True)
class EffectsPart:
    """The report's figures of effects, the most important ones first, and a table of all."""

    introduction: str
    shown: tuple[ReportFigure, ...]
    others: tuple[ReportFigure, ...]
    importance: Table


def effects_part(run: Run, name: str) -> EffectsPart | None:
    """Describe the figures; None if the model is not additive."""
    if run.effects is None:
        return None
    widening, scores = math.sqrt(design_effect(run)), run.effects.scores
    effects = [
        replace(
            effect,
            errors=tuple(tuple(ERRORS * widening * e for e in errors) for errors in effect.errors),
        )
        for effect in run.effects.by_importance
    ]
    unit = _unit(run, scores)
    main = {effect.axes[0].column: effect for effect in effects if len(effect.axes) == 1}
    departures = run.chosen.results.departures
    groups = run.chosen.results.groups
    places = {groups[a]: place for place, a in enumerate(by_rows(run.trained_rows))}
    drawn = [
        _figure(
            effect, f"{name}-effect-{number}", scores, unit, main, _own(departures, effect), places
        )
        for number, effect in enumerate(effects[:MAX_DRAWN], 1)
    ]
    return EffectsPart(
        f"These effects add up to {unit}, together with a constant. Each has the mean 0 over "
        "the training records. Their order is that of their importance, which is the standard "
        "deviation over these records. An effect is not a cause." + _by_group(run),
        tuple(drawn[:MAX_SHOWN]),
        tuple(drawn[MAX_SHOWN:]),
        Table(
            "Importance of all effects",
            ("effect", "standard deviation", "lowest", "highest"),
            tuple(_importance_line(effect) for effect in effects),
        ),
    )


def _own(departures: Sequence[Departure] | None, effect: Effect) -> list[Departure]:
    return [own for own in departures or () if [own.column] == [a.column for a in effect.axes]]


def _by_group(run: Run) -> str:
    """Say whether the effects are those of every group."""
    results = run.chosen.results
    if results.departures is None:
        return ""
    if not results.departures:
        return " In no group do the training records differ clearly from one of these effects."
    names = sorted({f"“{own.column}”" for own in results.departures})
    return (
        f" The effect of {listed(names)} is clearly another one in some groups: points show "
        "the levels that a group's own training records ask for, with intervals of 95%."
    )


def design_effect(run: Run) -> float:
    """Return how much more variance the groups' weights cause than equal weights of records."""
    rounds, card = run.chosen.rounds, CARDS.get(run.chosen.results.method.key)
    records = run.trained_rows
    weights: tuple[float, ...] = tuple(rounds[-1].weights)
    if card is None or card.weights is not Weights.GROUPS or len(weights) != len(records):
        return 1.0
    total = sum(weights)
    parts = [(weight / total) ** 2 / n for weight, n in zip(weights, records, strict=True) if n]
    return float(max(sum(records) * sum(parts), 1.0))


def _unit(run: Run, scores: Sequence[str]) -> str:
    results = run.chosen.results
    if not results.classes:
        return f"the prediction of “{results.target}”, in its unit"
    if len(scores) == 1:
        return f"the log-odds of “{scores[0]}”"
    return "the log-odds of each class against the mean of all"


def _importance_line(effect: Effect) -> tuple[str, ...]:
    shown = [
        value
        for values in effect.values
        for value, count in zip(values, effect.counts, strict=True)
        if count
    ] or [0.0]
    return effect.name, *(_number(value) for value in (effect.importance, min(shown), max(shown)))


def _number(value: float) -> str:
    return f"{value:.3g}".replace("-", MINUS)


def _figure(
    effect: Effect,
    name: str,
    scores: Sequence[str],
    unit: str,
    main: Mapping[str, Effect],
    departures: Sequence[Departure],
    places: Mapping[str, int],
) -> ReportFigure:
    several = len(scores) > 1
    if len(effect.axes) == 2:
        what = "A heat map of coarse cells."
        caption = "What both columns add together, beside what each adds by itself."
        if several:
            caption += f" For the class “{scores[widest(effect)]}”, whose cells differ most."
        height = 3.6
    elif effect.axes[0].is_number:
        what, height = "Steps: one level for each bin of values.", 2.6
        caption = "" if several else f"The band reaches {ERRORS} standard errors up and down."
    else:
        bars = bars_of(effect)
        what, height = f"{len(bars)} bars.", 1.2 + 0.27 * len(bars)
        caption = "" if several else f"Lines reach {ERRORS} standard errors to both sides."
    if 0 in effect.counts:
        caption += f" Left out: values with fewer than {MIN_SHOWN} training records."
    return ReportFigure(
        name,
        effect.name,
        description=f"{what} Effects on {unit}, from {_importance_line(effect)[2]} to "
        f"{_importance_line(effect)[3]}.",
        caption=caption.strip(),
        width=8.2,
        height=height,
        narrow_height=height + 0.6,
        draw=lambda figure: draw_effect(figure, effect, scores, main, departures, places),
        tables=(
            _table(effect, scores, main),
            *(_table_of_group(effect, own) for own in departures),
        ),
    )


def _table_of_group(effect: Effect, departure: Departure) -> Table:
    axis = effect.axes[0]
    lines = []
    for cell, codes in enumerate(departure.cells):
        level = _number(level_of(effect, departure, cell))
        error = _number(ERRORS * departure.errors[cell])
        lines.append((_codes_name(axis, codes), level, error))
    head = (effect.name, "its own effect", "give or take")
    return Table(f"Effect of {effect.name} in “{departure.group}”", head, tuple(lines))


def _codes_name(axis: Axis, codes: Sequence[int]) -> str:
    if not axis.is_number:
        return axis.labels[codes[0]] if len(codes) == 1 else f"{len(codes)} others"
    if codes[0] > len(axis.edges):
        return "missing"
    edges = [value_text(axis, edge) for edge in axis.edges]
    low = f"from {edges[codes[0] - 1]}" if codes[0] else ""
    high = f"below {edges[codes[-1]]}" if codes[-1] < len(edges) else ""
    return ", ".join(text for text in (low, high) if text) or "all values"


def _table(effect: Effect, scores: Sequence[str], main: Mapping[str, Effect]) -> Table:
    """Return the figure's numbers, of codes with enough records.

    How many these are is not told: what is missing from the total would tell the others.
    """
    numbers = tuple(scores) if len(scores) > 1 else ("effect", "give or take")
    if len(effect.axes) == 2:
        bars = _lines_of_cells(effect, main)
    else:
        bars = _lines_of_bins(effect) if effect.axes[0].is_number else bars_of(effect)
    lines = tuple((bar.label, *_cells(bar.values, bar.errors)) for bar in bars)
    return Table(f"Effect of {effect.name}", (effect.name, *numbers), lines)


def _cells(values: Sequence[float], errors: Sequence[float]) -> tuple[str, ...]:
    if len(values) > 1:
        return tuple(map(_number, values))
    return _number(values[0]), _number(errors[0])


def _lines_of_cells(effect: Effect, main: Mapping[str, Effect]) -> list[Bar]:
    first, second = (
        cell_names(axis, cells, main.get(axis.column))
        for axis, cells in zip(effect.axes, effect.cells, strict=True)
    )
    names = [f"{one}; {other}" for one in first for other in second]
    return [
        bar_of(effect, [code], names[code])
        for code, count in enumerate(effect.counts)
        if count >= MIN_SHOWN
    ]


def _lines_of_bins(effect: Effect) -> list[Bar]:
    """Return a line for each bin; bins with few records are together."""
    axis, bins = effect.axes[0], len(effect.axes[0].edges) + 1
    parts: list[list[int]] = []
    for code in range(bins):
        if parts and sum(effect.counts[other] for other in parts[-1]) < MIN_SHOWN:
            parts[-1].append(code)
        else:
            parts.append([code])
    if len(parts) > 1 and sum(effect.counts[other] for other in parts[-1]) < MIN_SHOWN:
        last = parts.pop()
        parts[-1] += last
    lines = [bar_of(effect, part, _codes_name(axis, part)) for part in parts]
    if axis.has_missing:
        lines.append(bar_of(effect, [bins], "missing"))
    return [line for line in lines if line.count >= MIN_SHOWN]
