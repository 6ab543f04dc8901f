"""The frontier between the plain and the minimax model: its file, its boundary, words and tables.

frontier.json has for each model its training risks, penalty included, what is proved, and its
results on test records with their paired change from the plain model. It is the record of a search
for less discriminatory alternatives.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from fedminmax.core.text import counted, listed, upper_percent, upper_text
from fedminmax.data.tables.census import Count
from fedminmax.findings.disclosure import MANY, decimals_told, is_told
from fedminmax.findings.records import RISK, Interval, NotNegative, Proof, Results
from fedminmax.findings.tables import Table
from fedminmax.findings.text import (
    LOSS_NAMES,
    NOTHING,
    capitalised,
    decimals_of,
    estimate,
    number,
    risk_name,
    span,
)
from fedminmax.findings.training import class_of_models, is_excess, worst_name
from fedminmax.findings.verdict import EVERYONE

ACCURACY = "accuracy"
PER = 1000
# Of training risks: points of a frontier are close to each other.
DIGITS = 5


class PointOfFrontier(BaseModel, frozen=True):
    """One model: every group keeps ``keep_share`` of its share as weight; the first is plain.

    ``mean`` and ``worst`` are training risks, penalty included; groups that are too small to be
    trained for keep their share in the latter. ``proof`` is about their mixture.
    """

    number: Count
    keep_share: Annotated[float, Field(ge=0, le=1)]
    round: Count
    mean: NotNegative
    worst: NotNegative
    risks: tuple[NotNegative, ...]
    weights: tuple[float, ...]
    proof: Proof
    results: Results

    @property
    def gap(self) -> float:
        """How far the mixture may be from the lowest possible one, as a share of it."""
        return self.proof.gap


class FrontierFile(BaseModel, frozen=True):
    """frontier.json: the points from the plain to the minimax model, and the recommended one."""

    format: Literal[1]
    rounds: Count
    recommended: Count
    points: Annotated[tuple[PointOfFrontier, ...], Field(min_length=2)]

    @property
    def boundary(self) -> tuple[tuple[float, float], ...]:
        """The corners (mean, worst) of the proved boundary: no model of this kind is below it."""
        lines = [(point.keep_share, point.proof.lower) for point in self.points]
        return corners(lines)


def corners(lines: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Return the corners of the region in which k m + (1 - k) w >= L for each line (k, L).

    Lines come with k from 1 downwards, corners from high w to low w. A line that others make
    superfluous has no corner.

    >>> corners([(1.0, 2.0), (0.5, 2.0), (0.0, 1.0)])
    ((2.0, 2.0), (3.0, 1.0))
    """
    kept: list[tuple[float, float]] = []
    for line in lines:
        while len(kept) > 1 and _is_below(_crossing(*kept[-2:]), line, kept[-2:]):
            kept.pop()
        kept.append(line)
    return tuple(_crossing(*pair) for pair in pairwise(kept))


def _crossing(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    (k, high), (j, low) = one, other
    mean = (high * (1.0 - j) - low * (1.0 - k)) / (k - j)
    worst = (low * k - high * j) / (k - j)
    return mean, worst


def _is_below(
    corner: tuple[float, float], line: tuple[float, float], pair: Sequence[tuple[float, float]]
) -> bool:
    """Return whether the newest line makes the last of the pair superfluous."""
    return _crossing(pair[-2], line)[1] >= corner[1]


def name_of(point: PointOfFrontier, frontier: FrontierFile) -> str:
    """Name a point by its number and what is special about it."""
    special = {
        "plain": point.number == 1,
        "minimax": point.keep_share == 0.0,
        "recommended": point.number == frontier.recommended,
    }
    names = [name for name, applies in special.items() if applies]
    return f"{point.number}, {listed(names)}" if names else str(point.number)


def frontier_table(frontier: FrontierFile) -> Table:
    """Return a line per model: its risks in training and on test records."""
    first = frontier.points[0].results
    has_tests = bool(first.test.rows)
    worst = worst_name(frontier.points[-1].results)
    headers = ["model", "keeps", "mean", worst, "gap"]
    lines = [_line(point, frontier, has_tests=has_tests) for point in frontier.points]
    if has_tests:
        headers += ["test: mean", "change", "test: worst group", "change", "its name"]
    return Table(
        f"Models from plain to minimax. Mean and {worst}: training risk "
        f"({LOSS_NAMES[first.loss]}) with penalty"
        + (f"; on test records: {risk_name(first)}, change from plain" * has_tests),
        tuple(headers),
        tuple(map(tuple, lines)),
    )


def _line(point: PointOfFrontier, frontier: FrontierFile, *, has_tests: bool) -> list[str]:
    line = [
        name_of(point, frontier),
        f"{100 * point.keep_share:.3g}%",
        f"{point.mean:.{DIGITS}g}",
        f"{point.worst:.{DIGITS}g}",
        upper_text(point.gap, 1),
    ]
    if has_tests:
        risk, change = point.results.risk, point.results.change
        decimals = decimals_of(frontier.points[0].results)
        worst = NOTHING if risk.worst is None else number(risk.worst.value, decimals)
        line += [
            number(risk.overall.value, decimals),
            _change(change.risk.overall if change else None, decimals),
            worst,
            _change(change.risk.worst if change else None, decimals),
            risk.worst_group or NOTHING,
        ]
    return line


def _change(interval: Interval | None, decimals: int) -> str:
    return NOTHING if interval is None or interval.value is None else estimate(interval, decimals)


def group_tables(frontier: FrontierFile) -> list[Table]:
    """Return risks and error rates of every group on test records, with changes from plain."""
    first = frontier.points[0].results
    metrics = [name for name in (RISK, ACCURACY) if name in first.test.metrics]
    return [_group_table(frontier, name) for name in metrics] if first.test.rows else []


def _group_table(frontier: FrontierFile, metric: str) -> Table:
    first = frontier.points[0].results
    decimals, is_rate = decimals_of(first, metric), metric == ACCURACY
    what = f"Misclassified per {PER:,}" if is_rate else capitalised(risk_name(first))

    def value(interval: Interval, most: int) -> str:
        if is_rate and interval.value is not None:
            return number(PER * (1.0 - interval.value), min(0, most - 3))
        return number(interval.value, min(decimals, most))

    def change(interval: Interval, most: int) -> str:
        low, high = interval.low, interval.high
        if low is None or high is None:
            return ""
        if is_rate:
            return f" ({span(-PER * high, -PER * low, min(0, most - 3))})"
        return f" ({span(low, high, min(decimals, most))})"

    def cells(place: int | None) -> list[str]:
        shown, most = [], MANY if place is None else decimals_told(first.test, metric, place)
        for point in frontier.points:
            own, changed = point.results.test.metrics[metric], point.results.change
            text = value(own.overall if place is None else own.by_group[place], most)
            if changed is not None and metric in changed.metrics:
                by = changed.metrics[metric]
                text += change(by.overall if place is None else by.by_group[place], most)
            shown.append(text)
        return shown

    test = first.test
    told = [place for place in range(len(first.groups)) if is_told(test, metric, place)]
    lines = [(first.groups[place], *cells(place)) for place in told]
    return Table(
        f"{what} by group on test records; in parentheses, from model 2 on, the interval of the "
        "change from plain",
        ("group", *(name_of(point, frontier) for point in frontier.points)),
        (*lines, (EVERYONE, *cells(None))),
    )


def frontier_sentences(frontier: FrontierFile) -> list[str]:
    """Say what the exchange is between mean and worst group, and what is certified."""
    plain, minimax = frontier.points[0], frontier.points[-1]
    own = frontier.points[frontier.recommended - 1]
    gain, price = plain.worst - minimax.worst, minimax.mean - plain.mean
    risk = worst_name(minimax.results) if is_excess(minimax.results) else "worst group's risk"
    exchange = (
        f"In training, from the plain to the minimax model the {risk} falls from "
        f"{plain.worst:.{DIGITS}g} to {minimax.worst:.{DIGITS}g}, and the mean rises from "
        f"{plain.mean:.{DIGITS}g} to {minimax.mean:.{DIGITS}g}."
    )
    if gain > 0 and price > 0:
        exchange += (
            f" Model {own.number}, which is recommended, has "
            f"{100 * (plain.worst - own.worst) / gain:.0f}% of that gain for "
            f"{100 * (own.mean - plain.mean) / price:.0f}% of that price."
        )
    largest = max(point.gap for point in frontier.points)
    certified = (
        f"Certified: no {class_of_models(own.results)} is below the boundary in the picture, and "
        f"these {len(frontier.points)} models are within {upper_percent(largest)} of it. They took "
        f"{counted(frontier.rounds, 'round')}."
    )
    return [exchange, *_verdicts(frontier), certified]


def _verdicts(frontier: FrontierFile) -> list[str]:
    """List the models by their verdict against the plain one; nothing without test records."""
    found: dict[str, list[str]] = {}
    for point in frontier.points:
        if point.results.change and point.results.verdict:
            found.setdefault(point.results.verdict.verdict, []).append(str(point.number))
    told = [f"{verdict} ({listed(numbers)})" for verdict, numbers in found.items()]
    return [f"Verdicts on test records, against model 1: {'; '.join(told)}."] if told else []
