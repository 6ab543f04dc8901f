"""One metric by group: values with intervals, the worst group and the gap."""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from fedminmax.report.bootstrap import percentiles, ratios

Table = NDArray[np.float64]


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
    Worst.LOWEST: operator.neg,
    Worst.FARTHEST: abs,
}


@dataclass(frozen=True)
class Estimate:
    """A value and its interval; NaN where there is none."""

    value: float
    low: float
    high: float


NO_ESTIMATE = Estimate(np.nan, np.nan, np.nan)


@dataclass(frozen=True)
class MetricByGroup:
    """One metric: by group, over all rows, and the highest group's value minus the lowest's.

    The gap's interval is that of the difference between these two groups: it reaches below 0 where
    it is not sure which of them is higher. It does not know that they were picked for being far
    apart: with many groups, some difference is only that.
    """

    by_group: dict[str, Estimate]
    overall: Estimate
    worst_group: str | None
    gap: Estimate

    @property
    def worst(self) -> Estimate | None:
        """The worst group's value; None for a metric in which none is better than another."""
        return None if self.worst_group is None else self.by_group[self.worst_group]


@dataclass(frozen=True)
class GroupMetrics:
    """All metrics by name, the rows of each group, and how the intervals were made."""

    counts: dict[str, int]
    metrics: dict[str, MetricByGroup]
    confidence: float
    resamples: int


def estimate_by_group(
    metric: str,
    values: dict[str, float],
    overall: float,
    numerators: Table,
    denominators: Table,
    confidence: float,
) -> MetricByGroup:
    """Put intervals around the values, from sums [resamples, groups] in the groups' order."""
    drawn = ratios(numerators, denominators)

    def estimate(value: float, resampled: Table) -> Estimate:
        return Estimate(value, *percentiles(resampled, confidence))

    highest = _worst_group(values, Worst.HIGHEST)
    lowest = _worst_group(values, Worst.LOWEST)
    gap = NO_ESTIMATE
    if highest is not None and lowest is not None:
        places = list(values)
        difference = drawn[:, places.index(highest)] - drawn[:, places.index(lowest)]
        gap = estimate(values[highest] - values[lowest], difference)
    return MetricByGroup(
        {
            group: estimate(value, drawn[:, number])
            for number, (group, value) in enumerate(values.items())
        },
        estimate(overall, ratios(numerators.sum(axis=1), denominators.sum(axis=1))),
        _worst_group(values, WORST.get(metric, Worst.HIGHEST)),
        gap,
    )


def _worst_group(values: dict[str, float], direction: Worst) -> str | None:
    """Return the first of the worst groups; one without a value is never it."""
    known = {group: value for group, value in values.items() if not np.isnan(value)}
    if not known or direction is Worst.NONE:
        return None
    return max(known, key=lambda group: BADNESS[direction](known[group]))
