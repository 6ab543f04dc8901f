"""How a metric changes by group from one model to another, measured on the same test rows.

Each row has a difference, after minus before, in which the difficulty that a row has for both
models cancels. Its interval is that of a mean (see ``intervals``). Sums are sufficient, since sum
(a - b)^2 = sum a^2 - 2 sum a b + sum b^2: they may come from rows in this process or from sites.

A rate is about some rows only, such as misses among those of the positive class. The true classes
are the same for both models, so its change is paired likewise: with b rows that only the second
model misses and c that only the first one does, of n, it is (b - c) / n (McNemar, Psychometrika
1947).

Whoever looks at many changes finds some that are large by chance. ``paired_changes`` gives all of
them intervals that hold at once (Bonferroni).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

from fedminmax.metrics import intervals
from fedminmax.metrics.auroc import Counts, area_change, curve_of
from fedminmax.metrics.by_group import AUROC
from fedminmax.metrics.sums import ScoreSums


@dataclass(frozen=True)
class PairedChange:
    """The metric after minus the metric before; NaN if a group has no rows.

    ``worst`` is the highest group's value after minus the highest group's value before, which may
    be another group; only groups of enough rows count. As for the difference, the interval ignores
    that these two were selected. ``rows`` of each group are those that the metric is about, and of
    the area under the ROC curve those of the rarer class.
    """

    by_group: tuple[intervals.Estimate, ...]
    overall: intervals.Estimate
    worst: intervals.Estimate
    rows: tuple[int, ...]


@dataclass(frozen=True)
class PairedChanges:
    """The changes by metric, whose intervals all hold at once, and how many changes these are."""

    metrics: dict[str, PairedChange]
    comparisons: int


def paired_changes(
    pairs: Mapping[str, ScoreSums],
    bounds: Mapping[str, intervals.Bounds],
    confidence: float = intervals.CONFIDENCE,
    small: Collection[int] = (),
    curves: Counts | None = None,
) -> PairedChanges:
    """Return the changes of these metrics, by group and over all rows.

    Compared are groups with enough rows of the metric that are not too ``small`` in training, and
    all rows. ``curves`` [groups, ...] are both models' counts of records by score, if known.
    """
    compared = 0
    known = [(*sums.counts.tolist(), int(sums.counts.sum())) for sums in pairs.values()]
    if curves is not None:
        known.append(tuple(curve_of(own, 0).rows for own in (*curves, curves.sum(axis=0))))
    for rows in known:
        lines = [own for group, own in enumerate(rows) if group not in small]
        compared += sum(own >= intervals.MIN_ROWS for own in lines)
    each = intervals.at_once(confidence, compared)
    metrics = {name: paired_change(sums, bounds[name], each, small) for name, sums in pairs.items()}
    if curves is not None:
        *by_group, overall = (area_change(own, each) for own in (*curves, curves.sum(axis=0)))
        none = intervals.NO_ESTIMATE
        metrics[AUROC] = PairedChange(tuple(by_group), overall, none, known[-1][:-1])
    return PairedChanges(metrics, compared)


def paired_change(
    sums: ScoreSums,
    bounds: intervals.Bounds,
    confidence: float = intervals.CONFIDENCE,
    small: Collection[int] = (),
) -> PairedChange:
    """Return the change between two models, from sums of two scores: after, before.

    Groups that are too ``small`` in training never count as the worst.

    >>> import torch
    >>> from fedminmax.metrics.sums import sum_scores
    >>> scores = torch.tensor([[0.0, 1.0], [1.0, 1.0]]).repeat(500, 1)
    >>> sums = sum_scores(scores, torch.zeros(1000, dtype=torch.int64), 1)
    >>> change = paired_change(sums, intervals.Bounds(0.0, 1.0)).overall
    >>> change.value, round(change.low, 3), round(change.high, 3)
    (-0.5, -0.532, -0.467)
    """
    differences = [_difference(sums, group) for group in range(len(sums.counts))]
    within = bounds.of_differences
    return PairedChange(
        tuple(intervals.mean_interval(own, within, confidence) for own in differences),
        intervals.mean_interval(reduce(add, differences), within, confidence),
        _change_of_worst(sums, differences, bounds, confidence, small),
        tuple(sums.counts.tolist()),
    )


def _difference(sums: ScoreSums, group: int) -> intervals.Scored:
    after, before = sums.totals[group].tolist()
    (squares_after, product), (_, squares_before) = sums.products[group].tolist()
    squares = max(0.0, squares_after - 2.0 * product + squares_before)
    return intervals.Scored.of_sums(int(sums.counts[group]), after - before, squares)


def _change_of_worst(
    sums: ScoreSums,
    differences: Sequence[intervals.Scored],
    bounds: intervals.Bounds,
    confidence: float,
    small: Collection[int],
) -> intervals.Estimate:
    enough = [
        group
        for group, own in enumerate(differences)
        if own.rows >= intervals.MIN_ROWS and group not in small
    ]
    if not (enough and intervals.has_worst(len(enough), sum(own.rows > 0 for own in differences))):
        return intervals.NO_ESTIMATE

    def of_model(place: int) -> dict[int, intervals.Scored]:
        return {
            group: intervals.Scored.of_sums(
                int(sums.counts[group]),
                float(sums.totals[group, place]),
                float(sums.products[group, place, place]),
            )
            for group in enough
        }

    after, before = of_model(0), of_model(1)
    worst, worst_before = (max(own, key=lambda group: own[group].mean) for own in (after, before))
    if worst == worst_before:
        return intervals.mean_interval(differences[worst], bounds.of_differences, confidence)
    # Two groups have no row in common.
    return intervals.difference(
        intervals.mean_interval(after[worst], bounds, confidence),
        intervals.mean_interval(before[worst_before], bounds, confidence),
    )
