"""One metric by group: values with intervals, the worst group and the gap.

The worst of several noisy values is bad partly by chance, and an interval around it does not know
that it was picked: the smaller the groups and the more of them, the more this matters. Groups of
fewer than ``MIN_ROWS`` rows are therefore neither called the worst off nor part of the gap.
"""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import reduce
from operator import add, neg

from fedminmax.report.mean_interval import (
    MIN_ROWS,
    NO_ESTIMATE,
    Bounds,
    Estimate,
    Scored,
    difference,
    mean_interval,
)


class Worst(Enum):
    """Which of several values is the worst off."""

    HIGHEST = "the highest"
    LOWEST = "the lowest"
    FARTHEST = "the farthest from 0"
    NONE = "none is better than another"


# Everything else is an error, a risk or a rate of errors: the highest is worst.
WORST = {
    "accuracy": Worst.LOWEST,
    "selection_rate": Worst.NONE,
    "calibration": Worst.FARTHEST,
    "overconfidence": Worst.FARTHEST,
    "mean_error": Worst.FARTHEST,
}
BADNESS: dict[Worst, Callable[[float], float]] = {
    Worst.HIGHEST: float,
    Worst.LOWEST: neg,
    Worst.FARTHEST: abs,
}
# What one row can add to each metric.
BOUNDS = {
    "accuracy": Bounds(0.0, 1.0),
    "brier_risk": Bounds(0.0, 2.0),
    "overconfidence": Bounds(-1.0, 1.0),
    "selection_rate": Bounds(0.0, 1.0),
    "false_positive_rate": Bounds(0.0, 1.0),
    "false_negative_rate": Bounds(0.0, 1.0),
    "calibration": Bounds(-1.0, 1.0),
    "squared_error": Bounds(0.0, math.inf),
    "absolute_error": Bounds(0.0, math.inf),
    "mean_error": Bounds(-math.inf, math.inf),
}


@dataclass(frozen=True)
class MetricByGroup:
    """One metric: by group, over all rows, and the highest group's value minus the lowest's.

    The gap's interval is that of the difference between these two groups: it reaches below 0 where
    it is not sure which of them is higher. It does not know that they were picked for being far
    apart: with many groups, some difference is only that. Without two groups of enough rows there
    is no gap.
    """

    by_group: dict[str, Estimate]
    overall: Estimate
    worst_group: str | None
    gap: Estimate

    @property
    def worst(self) -> Estimate | None:
        """The worst group's value; None where there is no worst group."""
        return None if self.worst_group is None else self.by_group[self.worst_group]


@dataclass(frozen=True)
class GroupMetrics:
    """All metrics by name, the rows of each group, and the confidence of the intervals."""

    counts: dict[str, int]
    metrics: dict[str, MetricByGroup]
    confidence: float


def metric_by_group(
    metric: str, groups: Mapping[str, Scored], confidence: float, small: Collection[str] = ()
) -> MetricByGroup:
    """Return a metric from what is known of each group's rows: those that the metric is about.

    Groups that are too ``small`` in training, too, are neither the worst off nor part of the gap.

    >>> groups = {"a": Scored(100, 0.9, 90.0), "b": Scored(60, 0.5, 30.0), "c": Scored(1, 0.0, 0.0)}
    >>> found = metric_by_group("accuracy", groups, confidence=0.95)
    >>> found.worst_group, found.gap.value, found.by_group["c"]
    ('b', 0.4, Estimate(value=0.0, low=0.0, high=1.0))
    """
    bounds = BOUNDS[metric]
    found = {name: mean_interval(own, bounds, confidence) for name, own in groups.items()}
    judged = [name for name, own in groups.items() if own.rows >= MIN_ROWS and name not in small]
    enough = {name: found[name] for name in judged}
    highest, lowest = _worst(enough, Worst.HIGHEST), _worst(enough, Worst.LOWEST)
    gap = NO_ESTIMATE
    if highest is not None and lowest is not None and len(enough) > 1:
        gap = difference(enough[highest], enough[lowest])
    return MetricByGroup(
        found,
        mean_interval(reduce(add, groups.values()), bounds, confidence),
        _worst(enough, WORST.get(metric, Worst.HIGHEST)),
        gap,
    )


def _worst(estimates: Mapping[str, Estimate], direction: Worst) -> str | None:
    """Return the first of the worst groups."""
    if not estimates or direction is Worst.NONE:
        return None
    return max(estimates, key=lambda name: BADNESS[direction](estimates[name].value))
