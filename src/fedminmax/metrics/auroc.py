"""The area under the ROC curve from counts by class and score, which are sums over records.

It is the chance that a record of the positive class has a higher score than one of the other class,
where equal scores count half (Mann and Whitney, Annals of Mathematical Statistics 1947). Each
record has a placement: the share of the other class that it is on the right side of. The area is
the mean placement of either class, and its variance the sum of those of both means (DeLong, DeLong
and Clarke-Pearson, Biometrics 1988). Each mean gets the interval of ``metrics.intervals``, which
also holds for few records, and their distances from the area are squared and added.

Records of sites stay there: counts are of bins of log-odds, ``BIN`` wide and the same everywhere,
and two records of one bin count as equal. How much that can matter is seen where bins are made
twice as wide: the larger of the two differences (bins can be paired in two ways) is added to both
ends of the interval. For scores that vary smoothly the error is about a quarter of it.

The change from one model to another needs the placements of the same record by both. Counts of
records by the middle of both log-odds and by their difference give the mean square of a change;
differences are in cells that double in width, so that small ones are told apart.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedminmax.metrics.intervals import (
    CONFIDENCE,
    NO_ESTIMATE,
    Bounds,
    Estimate,
    Scored,
    mean_interval,
)

Counts = NDArray[np.int64]
Values = NDArray[np.float64]
# Log-odds beyond this are those of certainty, which has a bin of its own at either end.
LIMIT = 16.0
INNER_BINS = 510
BINS = INNER_BINS + 2
BIN = 2 * LIMIT / INNER_BINS
# Cells of two models' scores: of the middle, and of the difference to either side of 0.
BINS_OF_MIDDLE, DOUBLINGS, SMALLEST = 6, 11, 2.0**-7
MIDDLES = INNER_BINS // BINS_OF_MIDDLE
DIFFERENCES = 2 * DOUBLINGS + 1
CELLS = MIDDLES * DIFFERENCES
PLACEMENTS = Bounds(0.0, 1.0)


@dataclass(frozen=True, eq=False)
class Curve:
    """Records of the positive class and of the other one, by their scores in ascending order.

    ``binned`` are counts of bins; otherwise each count is of one score.
    """

    positives: Counts
    negatives: Counts
    binned: bool = True

    @property
    def rows(self) -> int:
        """The records of the rarer class: both must be many."""
        return int(min(self.positives.sum(), self.negatives.sum()))

    @cached_property
    def above(self) -> Values:
        """By score: the share of the other class that a positive record is above."""
        return _placements(self.negatives)

    @cached_property
    def below(self) -> Values:
        """By score: the share of the positive class that another record is below."""
        return _placements(self.positives[::-1])[::-1]

    @property
    def area(self) -> float:
        """The area; NaN if a class has no record."""
        if not self.rows:
            return math.nan
        return float(self.positives @ self.above) / int(self.positives.sum())

    @property
    def rounding(self) -> float:
        """How much the area changes where bins are twice as wide, at most."""
        if not self.binned:
            return 0.0
        return max(abs(self.paired(shift).area - self.area) for shift in (0, 1))

    def paired(self, shift: int) -> "Curve":
        """Return the curve of bins that are twice as wide, from the first or the second one on."""

        def paired(counts: Counts) -> Counts:
            inner = np.pad(counts[1:-1], (shift, shift)).reshape(-1, 2).sum(axis=1)
            return np.concatenate([counts[:1], inner, counts[-1:]])

        return Curve(paired(self.positives), paired(self.negatives))

    def __add__(self, other: "Curve") -> "Curve":
        """Add the records of both."""
        return Curve(
            self.positives + other.positives, self.negatives + other.negatives, self.binned
        )


def _placements(others: Counts) -> Values:
    """Return the share of the others that are lower, and half of those that are equal."""
    upto = np.cumsum(others)
    return (upto - 0.5 * others) / max(1, int(others.sum()))


def area_interval(curve: Curve, confidence: float = CONFIDENCE) -> Estimate:
    """Return the area with its interval.

    >>> curve = Curve(np.array([0, 10, 40]), np.array([40, 10, 0]), binned=False)
    >>> found = area_interval(curve)
    >>> round(found.value, 2), round(found.low, 3), round(found.high, 3)
    (0.98, 0.896, 0.997)
    """
    area = curve.area
    if math.isnan(area):
        return NO_ESTIMATE
    sides = [
        Scored.of_sums(int(counts.sum()), area * int(counts.sum()), float(counts @ placements**2))
        for counts, placements in (
            (curve.positives, curve.above),
            (curve.negatives, curve.below),
        )
    ]
    return _of_sides(area, sides, PLACEMENTS, confidence, curve.rounding)


def _of_sides(
    value: float, sides: Sequence[Scored], bounds: Bounds, confidence: float, rounding: float
) -> Estimate:
    """Return the interval of a value that is the mean of either class's records."""
    ends = [mean_interval(own, bounds, confidence) for own in sides]
    low = value - math.hypot(*(value - own.low for own in ends)) - rounding
    high = value + math.hypot(*(own.high - value for own in ends)) + rounding
    return Estimate(value, max(bounds.lower, low), min(bounds.upper, high))


def exact_curve(scores: Values, positive: NDArray[np.bool_]) -> Curve:
    """Return the curve of these records, of each score by itself.

    >>> exact_curve(np.array([0.1, 0.4, 0.4]), np.array([False, True, False])).area
    0.75
    """
    distinct, places = np.unique(_rounded(scores), return_inverse=True)
    return Curve(
        np.bincount(places[positive], minlength=len(distinct)),
        np.bincount(places[~positive], minlength=len(distinct)),
        binned=False,
    )


def _rounded(scores: Values) -> Values:
    """Return scores without their last digits, which depend on how they were computed."""
    rounded: Values = np.round(scores, 12)
    return rounded


def _log_odds(scores: Values) -> Values:
    clipped = np.clip(_rounded(scores), 1e-12, 1.0 - 1e-12)
    odds: Values = np.log(clipped) - np.log1p(-clipped)
    return odds


def bins_of(scores: Values) -> NDArray[np.int64]:
    """Return the bin of each score from 0 to 1.

    >>> bins_of(np.array([0.0, 1e-9, 0.4, 0.5, 1.0])).tolist()
    [0, 0, 249, 256, 511]
    """
    places = np.floor((_log_odds(scores) + LIMIT) / BIN) + 1
    bins: NDArray[np.int64] = np.clip(places, 0, BINS - 1).astype(np.int64)
    return bins


def cells_of(first: Values, second: Values) -> NDArray[np.int64]:
    """Return the cell of each record that has these scores by two models."""
    one, other = (np.clip(_log_odds(own), -LIMIT, LIMIT) for own in (first, second))
    middle = np.floor((one + other + 2 * LIMIT) / (4 * LIMIT) * MIDDLES)
    apart = one - other
    with np.errstate(divide="ignore"):
        doublings = np.floor(np.log2(np.abs(apart) / SMALLEST)) + 1
    size = np.clip(doublings, 0, DOUBLINGS) * np.sign(apart)
    cells = np.clip(middle, 0, MIDDLES - 1) * DIFFERENCES + size + DOUBLINGS
    numbers: NDArray[np.int64] = cells.astype(np.int64)
    return numbers


def counts_length(models: int) -> int:
    """Return how many counts there are by line, for so many models with scores."""
    return 2 * (models * BINS + max(0, models - 1) * CELLS)


def counts_of(
    scores: Values, positive: NDArray[np.bool_], line: NDArray[np.int64], lines: int
) -> Counts:
    """Count records [lines, 2, bins of each model and cells of each further one with the first].

    ``scores`` [rows, models] are the probabilities of the positive class.
    """
    models = scores.shape[1]
    parts = [(bins_of(own), BINS) for own in scores.T]
    parts += [(cells_of(scores[:, 0], scores[:, own]), CELLS) for own in range(1, models)]
    row = 2 * line + positive
    tables = [
        np.bincount(row * size + places, minlength=2 * lines * size).reshape(2 * lines, size)
        for places, size in parts
    ]
    return np.concatenate(tables, axis=1).reshape(lines, -1)


def curve_of(counts: Counts, model: int) -> Curve:
    """Return a model's curve from the counts of one line."""
    negatives, positives = counts.reshape(2, -1)[:, model * BINS : (model + 1) * BINS]
    return Curve(positives, negatives)


def counts_of_models(counts: Counts, numbers: Sequence[int], models: int) -> Counts:
    """Return the counts [lines, ...] of some models; of two, one must be the first of all."""
    table = counts.reshape(len(counts), 2, -1)
    kept = [table[:, :, own * BINS : (own + 1) * BINS] for own in numbers]
    if len(numbers) > 1:
        further = max(numbers)
        start = models * BINS + (further - 1) * CELLS
        cells = table[:, :, start : start + CELLS]
        if further == 0:
            # A model and itself: nothing changes.
            cells = np.zeros((len(counts), 2, CELLS), np.int64)
        elif numbers[0] == further:
            turned = cells.reshape(len(counts), 2, MIDDLES, DIFFERENCES)[..., ::-1]
            cells = turned.reshape(len(counts), 2, CELLS)
        kept.append(cells)
    return np.concatenate(kept, axis=2).reshape(len(counts), -1)


def area_change(counts: Counts, confidence: float = CONFIDENCE) -> Estimate:
    """Return the first model's area minus the second's, from the counts of one line of both.

    The interval is that of the mean change of each class's placements.
    """
    curves = curve_of(counts, 0), curve_of(counts, 1)
    change = curves[0].area - curves[1].area
    if math.isnan(change):
        return NO_ESTIMATE
    negatives, positives = counts.reshape(2, -1)[:, 2 * BINS : 2 * BINS + CELLS]
    classes = (
        (positives, [own.positives for own in curves], [own.above for own in curves]),
        (negatives, [own.negatives for own in curves], [own.below for own in curves]),
    )
    sides = []
    for cells, (first, second), placements in classes:
        rows = int(first.sum())
        changes, squares = _changes_by_cell(first + second, *placements)
        known = max(1, int(cells.sum()))
        spread = float(cells @ squares) - float(cells @ changes) ** 2 / known
        sides.append(Scored.of_sums(rows, rows * change, max(0.0, spread) + rows * change**2))
    rounding = max(
        abs(curves[0].paired(shift).area - curves[1].paired(shift).area - change)
        for shift in (0, 1)
    )
    return _of_sides(change, sides, PLACEMENTS.of_differences, confidence, rounding)


def _changes_by_cell(records: Counts, first: Values, second: Values) -> tuple[Values, Values]:
    """Return by cell the mean difference of two models' placements, and the mean square.

    Within a cell they are means over the bins of its middle, by the ``records`` of these.
    """
    sizes = np.arange(-DOUBLINGS, DOUBLINGS + 1)
    # Between SMALLEST 2^(k - 1) and SMALLEST 2^k.
    apart = np.sign(sizes) * 1.5 * SMALLEST * 2.0 ** (np.abs(sizes) - 1)
    centres = -LIMIT + (np.arange(BINS) - 0.5) * BIN
    middles = centres[1:-1].reshape(MIDDLES, 1, BINS_OF_MIDDLE)
    one, other = (
        np.interp(middles + sign * apart[:, None] / 2, centres, placements)
        for sign, placements in ((1, first), (-1, second))
    )
    weights = records[1:-1].reshape(MIDDLES, 1, BINS_OF_MIDDLE) + 1e-9
    weights = weights / weights.sum(axis=2, keepdims=True)
    changes = one - other
    return (weights * changes).sum(axis=2).ravel(), (weights * changes**2).sum(axis=2).ravel()
