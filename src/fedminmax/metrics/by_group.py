"""Metrics by group: values with intervals, worst group, difference, and a table in Markdown.

The intervals are those of ``metrics.intervals``.

The worst of several noisy values is bad partly by chance: the smaller the groups and the more of
them, the more this matters. Its interval and the difference's account for this selection (see
``metrics.intervals``); a group's own interval does not. Groups with fewer than ``MIN_ROWS`` rows
are neither called the worst off nor part of the difference. If only one of several groups has
enough rows, none is called the worst off.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import reduce
from operator import add, neg
from typing import Any

import numpy as np

from fedminmax.core.errors import InputError
from fedminmax.core.text import format_value, is_finite, markdown_table
from fedminmax.data.frames import RowGroups, group_rows
from fedminmax.metrics.auroc import Curve, area_interval, exact_curve
from fedminmax.metrics.intervals import (
    CONFIDENCE,
    MIN_ROWS,
    NO_ESTIMATE,
    Bounds,
    Estimate,
    Scored,
    at_once,
    gap,
    gap_of_means,
    has_worst,
    highest,
    highest_mean,
    lowest_mean,
    mean_interval,
)
from fedminmax.metrics.parity import ParityMeasure, parity_measures
from fedminmax.metrics.row_scores import (
    RowScore,
    positive_scores,
    score_classes,
    score_quantities,
)


class Worst(Enum):
    """Which of several values is the worst off."""

    HIGHEST = "the highest"
    LOWEST = "the lowest"
    FARTHEST = "the farthest from 0"
    NONE = "none is better than another"


AUROC = "auroc"
# All others are errors, risks or error rates: the highest is worst.
WORST = {
    "accuracy": Worst.LOWEST,
    AUROC: Worst.LOWEST,
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
# The range of one row's contribution to each metric.
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

    ``worst`` is the worst group's value, with an interval for the worst of all groups; None if
    there is none. ``difference`` is the highest group's value minus the lowest's; without two
    groups of enough rows there is none. Both intervals account for the selection of these
    groups; that of the difference begins at 0 if all groups may be equal.
    """

    by_group: dict[str, Estimate]
    overall: Estimate
    worst_group: str | None
    difference: Estimate
    worst: Estimate | None = None


@dataclass(frozen=True)
class GroupMetrics:
    """All metrics by name, the rows of each group, and the confidence of the intervals.

    ``parity`` are differences and ratios of rates between groups, of a positive class.
    """

    counts: dict[str, int]
    metrics: dict[str, MetricByGroup]
    confidence: float
    parity: dict[str, ParityMeasure]


def metric_by_group(
    metric: str, groups: Mapping[str, Scored], confidence: float, small: Collection[str] = ()
) -> MetricByGroup:
    """Return a metric from statistics of each group's rows, those that the metric is about.

    Groups that are too ``small`` in training are neither the worst off nor in the difference.

    >>> groups = {"a": Scored(100, 0.9, 90.0), "b": Scored(60, 0.5, 30.0), "c": Scored(1, 0.0, 0.0)}
    >>> found = metric_by_group("accuracy", groups, confidence=0.95)
    >>> found.worst_group, found.difference.value, found.by_group["c"]
    ('b', 0.4, Estimate(value=0.0, low=0.0, high=1.0))
    """
    bounds = BOUNDS[metric]
    found = {name: mean_interval(own, bounds, confidence) for name, own in groups.items()}
    judged = [name for name, own in groups.items() if own.rows >= MIN_ROWS and name not in small]
    if not has_worst(len(judged), sum(own.rows > 0 for own in groups.values())):
        judged = []
    enough, direction = [groups[name] for name in judged], WORST.get(metric, Worst.HIGHEST)
    worst_group = _worst({name: found[name] for name in judged}, direction)
    worst = None
    if worst_group is not None and direction is Worst.FARTHEST:
        strict = at_once(confidence, len(judged))
        worst = mean_interval(groups[worst_group], bounds, strict)
    elif worst_group is not None:
        chosen = highest_mean if direction is Worst.HIGHEST else lowest_mean
        worst = chosen(enough, bounds, confidence)
    return MetricByGroup(
        found,
        mean_interval(reduce(add, groups.values()), bounds, confidence),
        worst_group,
        gap_of_means(enough, bounds, confidence) if len(enough) > 1 else NO_ESTIMATE,
        worst,
    )


def auroc_by_group(
    groups: Mapping[str, Curve], everyone: Curve, confidence: float, small: Collection[str] = ()
) -> MetricByGroup:
    """Return the area under the ROC curve by group, and that of all records together.

    A group is compared if it has enough records of both classes.
    """
    found = {name: area_interval(own, confidence) for name, own in groups.items()}
    judged = [name for name, own in groups.items() if own.rows >= MIN_ROWS and name not in small]
    overall = area_interval(everyone, confidence)
    if not judged or not has_worst(len(judged), sum(own.rows > 0 for own in groups.values())):
        return MetricByGroup(found, overall, None, NO_ESTIMATE)

    def at(intervals: int) -> list[Estimate]:
        strict = at_once(confidence, intervals)
        return [area_interval(groups[name], strict) for name in judged]

    plain = [found[name] for name in judged]
    turned, sure = ([own.negative for own in part] for part in (plain, at(len(judged))))
    return MetricByGroup(
        found,
        overall,
        _worst({name: found[name] for name in judged}, Worst.LOWEST),
        gap(plain, at(len(judged) * (len(judged) - 1))) if len(judged) > 1 else NO_ESTIMATE,
        highest(turned, sure).negative,
    )


def _worst(estimates: Mapping[str, Estimate], direction: Worst) -> str | None:
    """Return the first of the worst groups."""
    if not estimates or direction is Worst.NONE:
        return None
    return max(estimates, key=lambda name: BADNESS[direction](estimates[name].value))


def group_metrics(
    y_true: Any,
    *,
    sensitive_features: Any,
    y_pred: Any = None,
    y_prob: Any = None,
    classes: Sequence[Any] | None = None,
    positive: Any = None,
    confidence: float = CONFIDENCE,
) -> GroupMetrics:
    """Measure a classifier by group.

    Args:
        y_true: the class of each row.
        sensitive_features: the group of each row, as in ``FedMinMaxClassifier.fit``.
        y_pred: the predictions; by default the most probable class.
        y_prob: a column of probabilities per class (or, of two classes, the second one's column);
            without them there is no Brier risk and no calibration.
        classes: the classes in the order of those columns; by default those that occur, sorted.
        positive: the class that rates are about; by default the second of two.
        confidence: how often intervals should cover the value for unlimited rows of a group.

    >>> found = group_metrics([0, 1] * 60, y_pred=[0, 1] * 30 + [0, 0] * 30,
    ...     sensitive_features=["a"] * 60 + ["b"] * 60)
    >>> found.metrics["accuracy"].worst_group, found.metrics["accuracy"].difference.value
    ('b', 0.5)
    """
    scores = score_classes(y_true, y_pred=y_pred, y_prob=y_prob, classes=classes, positive=positive)
    return measure_scores(scores, sensitive_features, confidence)


def regression_group_metrics(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    confidence: float = CONFIDENCE,
) -> GroupMetrics:
    """Measure a regressor by group: squared, absolute and mean error; see ``group_metrics``."""
    scores = score_quantities(y_true, y_pred)
    return measure_scores(scores, sensitive_features, confidence)


def measure_scores(
    scores: Mapping[str, RowScore],
    sensitive_features: Any,
    confidence: float = CONFIDENCE,
    small: Collection[str] = (),
) -> GroupMetrics:
    """Measure rows with known scores; ``small`` groups are never the worst off."""
    if not (is_finite(confidence) and 0.0 < confidence < 1.0):
        raise InputError(f"confidence = {format_value(confidence)}; give a share between 0 and 1")
    rows = len(next(iter(scores.values())).numerators)
    if rows == 0:
        raise InputError("there are no rows; give at least one")
    groups = group_rows(sensitive_features, rows)
    scored = {name: _scored(score, groups) for name, score in scores.items()}
    metrics = {name: metric_by_group(name, own, confidence, small) for name, own in scored.items()}
    known = positive_scores(scores)
    if known is not None:
        own, positive = known
        curves = {
            name: exact_curve(own[groups.numbers == number], positive[groups.numbers == number])
            for number, name in enumerate(groups.names)
        }
        metrics[AUROC] = auroc_by_group(curves, exact_curve(own, positive), confidence, small)
    counts = dict(zip(groups.names, groups.counts.tolist(), strict=True))
    return GroupMetrics(counts, metrics, confidence, parity_measures(scored, confidence, small))


def _scored(score: RowScore, groups: RowGroups) -> dict[str, Scored]:
    """Sum a score by group; a group without rows that the metric is about has no mean."""
    rows, squares = (
        np.bincount(groups.numbers, weights=column, minlength=len(groups.names)).tolist()
        for column in (score.denominators, score.numerators**2)
    )
    # One group's numbers after the other's: NumPy adds up a whole array more precisely.
    in_order = score.numerators[np.argsort(groups.numbers, kind="stable")]
    totals = [float(own.sum()) for own in np.split(in_order, np.cumsum(groups.counts)[:-1])]
    return {
        name: Scored(int(count), total / count if count else math.nan, square)
        for name, count, total, square in zip(groups.names, rows, totals, squares, strict=True)
    }


def group_metrics_as_markdown(found: GroupMetrics) -> str:
    """Return the table; a star marks the worst group of each metric.

    >>> from fedminmax.metrics.by_group import group_metrics
    >>> print(group_metrics_as_markdown(group_metrics([0, 1] * 60, y_pred=[0, 1] * 29 + [0, 0] * 31,
    ...     sensitive_features=["few"] + ["a"] * 57 + ["b"] * 62, classes=[0, 1, 2])))
    | group | rows | accuracy |
    |---|---|---|
    | a | 57 | 1.000 (0.948 to 1.000) |
    | b | 62 | 0.500 (0.365 to 0.635) * |
    | all | 120 | 0.742 (0.656 to 0.823) |
    | difference |  | 0.500 (0.330 to 0.635) |
    | few | 1 | 1.000 (0.000 to 1.000) |
    """
    metrics = found.metrics.values()
    lines = {
        group: [
            group,
            f"{rows:,}",
            *(
                _shown(metric.by_group[group]) + " *" * (metric.worst_group == group)
                for metric in metrics
            ),
        ]
        for group, rows in found.counts.items()
    }
    small = [group for group, rows in found.counts.items() if rows < MIN_ROWS]
    overall = [_shown(metric.overall) for metric in metrics]
    differences = [_shown(metric.difference) for metric in metrics]
    return markdown_table(
        ["group", "rows", *(name.replace("_", " ") for name in found.metrics)],
        [
            *(line for group, line in lines.items() if group not in small),
            ["all", f"{sum(found.counts.values()):,}", *overall],
            ["difference", "", *differences],
            *(lines[group] for group in small),
        ],
    )


def _shown(estimate: Estimate) -> str:
    """Format the value with its interval, as far as they are known."""
    if math.isnan(estimate.value):
        return ""
    if math.isnan(estimate.low):
        return f"{estimate.value:.3f} (no interval)"
    return f"{estimate.value:.3f} ({estimate.low:.3f} to {estimate.high:.3f})"
