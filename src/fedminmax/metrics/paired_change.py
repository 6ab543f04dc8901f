"""How a metric changes by group from one model to another, measured on the same test rows.

Each row has a difference, after minus before, in which the difficulty that a row has for both
models cancels. Its interval is that of a mean (see ``intervals``). Sums are sufficient, since sum
(a - b)^2 = sum a^2 - 2 sum a b + sum b^2: they may come from rows in this process or from sites.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

from fedminmax.metrics.intervals import (
    CONFIDENCE,
    MIN_ROWS,
    NO_ESTIMATE,
    Bounds,
    Estimate,
    Scored,
    difference,
    has_worst,
    mean_interval,
)
from fedminmax.metrics.sums import ScoreSums


@dataclass(frozen=True)
class PairedChange:
    """The metric after minus the metric before; NaN if a group has no rows.

    ``worst`` is the highest group's value after minus the highest group's value before, which may
    be another group; only groups of enough rows count. As for the difference, the interval ignores
    that these two were selected.
    """

    by_group: tuple[Estimate, ...]
    overall: Estimate
    worst: Estimate


def paired_change(
    sums: ScoreSums,
    bounds: Bounds,
    confidence: float = CONFIDENCE,
    small: Collection[int] = (),
) -> PairedChange:
    """Return the change between two models, from sums of two scores: after, before.

    Groups that are too ``small`` in training never count as the worst.

    >>> import torch
    >>> from fedminmax.metrics.sums import sum_scores
    >>> scores = torch.tensor([[0.0, 1.0], [1.0, 1.0]]).repeat(500, 1)
    >>> sums = sum_scores(scores, torch.zeros(1000, dtype=torch.int64), 1)
    >>> change = paired_change(sums, Bounds(0.0, 1.0)).overall
    >>> change.value, round(change.low, 3), round(change.high, 3)
    (-0.5, -0.532, -0.467)
    """
    differences = [_difference(sums, group) for group in range(len(sums.counts))]
    within = bounds.of_differences
    return PairedChange(
        tuple(mean_interval(own, within, confidence) for own in differences),
        mean_interval(reduce(add, differences), within, confidence),
        _change_of_worst(sums, differences, bounds, confidence, small),
    )


def _difference(sums: ScoreSums, group: int) -> Scored:
    after, before = sums.totals[group].tolist()
    (squares_after, product), (_, squares_before) = sums.products[group].tolist()
    squares = max(0.0, squares_after - 2.0 * product + squares_before)
    return Scored.of_sums(int(sums.counts[group]), after - before, squares)


def _change_of_worst(
    sums: ScoreSums,
    differences: Sequence[Scored],
    bounds: Bounds,
    confidence: float,
    small: Collection[int],
) -> Estimate:
    enough = [
        group
        for group, own in enumerate(differences)
        if own.rows >= MIN_ROWS and group not in small
    ]
    if not (enough and has_worst(len(enough), sum(own.rows > 0 for own in differences))):
        return NO_ESTIMATE

    def of_model(place: int) -> dict[int, Scored]:
        return {
            group: Scored.of_sums(
                int(sums.counts[group]),
                float(sums.totals[group, place]),
                float(sums.products[group, place, place]),
            )
            for group in enough
        }

    after, before = of_model(0), of_model(1)
    worst, worst_before = (max(own, key=lambda group: own[group].mean) for own in (after, before))
    if worst == worst_before:
        return mean_interval(differences[worst], bounds.of_differences, confidence)
    # Two groups have no row in common.
    return difference(
        mean_interval(after[worst], bounds, confidence),
        mean_interval(before[worst_before], bounds, confidence),
    )
