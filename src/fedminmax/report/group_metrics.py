"""Results by group through Fairlearn's MetricFrame, with intervals.

Point values are the MetricFrame's (Weerts et al.: Fairlearn, JMLR 2023); the intervals are those of
``mean_interval``.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedminmax.core.errors import InputError
from fedminmax.core.numbers import in_words, is_finite
from fedminmax.core.optional_packages import install_command
from fedminmax.data.row_groups import RowGroups, group_rows
from fedminmax.data.row_scores import RowScore, score_classes, score_quantities
from fedminmax.report.mean_interval import CONFIDENCE, Scored
from fedminmax.report.metric_by_group import GroupMetrics, metric_by_group


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
        y_pred: the answers; by default the most probable class.
        y_prob: a column of probabilities per class (or, of two classes, the second one's column);
            without them there is no Brier risk and no calibration.
        classes: the classes in the order of those columns; by default those that occur, sorted.
        positive: the class that rates are about; by default the second of two.
        confidence: how often intervals should cover what endless rows of a group would score.

    >>> found = group_metrics([0, 1] * 60, y_pred=[0, 1] * 30 + [0, 0] * 30,
    ...     sensitive_features=["a"] * 60 + ["b"] * 60)
    >>> found.metrics["accuracy"].worst_group, found.metrics["accuracy"].gap.value
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


def metric_frame(scores: Mapping[str, RowScore], groups: RowGroups) -> Any:
    """Return Fairlearn's MetricFrame of these scores, one line per group."""
    if find_spec("fairlearn") is None:
        raise InputError(f"results by group need Fairlearn: {install_command('fairlearn')}")
    from fairlearn.metrics import MetricFrame

    # MetricFrame copies every argument of every metric row by row: row numbers in place of labels
    # and columns halve its time.
    rows = np.arange(len(groups.numbers))
    return MetricFrame(
        metrics={name: partial(_quotient, score) for name, score in scores.items()},
        y_true=rows,
        y_pred=rows,
        sensitive_features={"group": np.array(groups.names, dtype=object)[groups.numbers]},
    )


def _quotient(score: RowScore, rows: NDArray[np.int64], _: object) -> float:
    total = float(score.denominators[rows].sum())
    return float(score.numerators[rows].sum()) / total if total else np.nan


def measure_scores(
    scores: Mapping[str, RowScore],
    sensitive_features: Any,
    confidence: float = CONFIDENCE,
    small: Collection[str] = (),
) -> GroupMetrics:
    """Measure rows whose scores are known already; ``small`` groups are never the worst off."""
    if not (is_finite(confidence) and 0.0 < confidence < 1.0):
        raise InputError(f"confidence = {in_words(confidence)}; give a share between 0 and 1")
    rows = len(next(iter(scores.values())).numerators)
    if rows == 0:
        raise InputError("there are no rows; give at least one")
    groups = group_rows(sensitive_features, rows)
    frame = metric_frame(scores, groups)
    metrics = {
        name: metric_by_group(name, _scored(score, frame.by_group[name], groups), confidence, small)
        for name, score in scores.items()
    }
    counts = dict(zip(groups.names, groups.counts.tolist(), strict=True))
    return GroupMetrics(counts, metrics, confidence)


def _scored(score: RowScore, values: Any, groups: RowGroups) -> dict[str, Scored]:
    """Add up a score by group; the means are the MetricFrame's."""
    columns = (score.denominators, score.numerators**2)
    rows, squares = (
        np.bincount(groups.numbers, weights=column, minlength=len(groups.names)).tolist()
        for column in columns
    )
    return {
        name: Scored(int(rows[number]), float(values.loc[name]), squares[number])
        for number, name in enumerate(groups.names)
    }
