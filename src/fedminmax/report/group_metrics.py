"""Results by group through Fairlearn's MetricFrame, with bootstrap intervals.

Point values are the MetricFrame's (Weerts et al.: Fairlearn, JMLR 2023); intervals are percentiles
over resamples of the rows within each group. The worst of several noisy values is bad partly by
chance, and an interval around it does not know that it was picked: the smaller the groups and the
more of them, the more this matters.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedminmax.core.errors import InputError
from fedminmax.core.optional_packages import install_command
from fedminmax.data.row_groups import RowGroups, group_rows
from fedminmax.data.row_scores import RowScore, score_classes, score_quantities, stacked
from fedminmax.methods.checks import check_whole
from fedminmax.report.bootstrap import CONFIDENCE, RESAMPLES, resampled_sums
from fedminmax.report.metric_by_group import GroupMetrics, estimate_by_group


def group_metrics(
    y_true: Any,
    *,
    sensitive_features: Any,
    y_pred: Any = None,
    y_prob: Any = None,
    classes: Sequence[Any] | None = None,
    positive: Any = None,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int = 0,
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
        resamples: how often the rows of each group are drawn again.
        confidence: the share of resamples that an interval covers.
        seed: of the resamples.

    >>> found = group_metrics([0, 1, 1, 1], y_pred=[0, 1, 0, 1], sensitive_features=list("aabb"))
    >>> found.metrics["accuracy"].worst_group, found.metrics["accuracy"].gap.value
    ('b', 0.5)
    """
    scores = score_classes(y_true, y_pred=y_pred, y_prob=y_prob, classes=classes, positive=positive)
    return measure_scores(scores, sensitive_features, resamples, confidence, seed)


def regression_group_metrics(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> GroupMetrics:
    """Measure a regressor by group: squared, absolute and mean error; see ``group_metrics``."""
    scores = score_quantities(y_true, y_pred)
    return measure_scores(scores, sensitive_features, resamples, confidence, seed)


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
    resamples: int,
    confidence: float,
    seed: int,
) -> GroupMetrics:
    """Measure rows whose scores are known already."""
    check_whole("group_metrics", least=1, resamples=resamples)
    if not 0.0 < confidence < 1.0:
        raise InputError(f"confidence = {confidence:g}; give a share between 0 and 1")
    table = stacked(scores)
    groups = group_rows(sensitive_features, len(table))
    names = groups.names
    frame = metric_frame(scores, groups)
    sums = resampled_sums(table, groups.numbers, len(names), resamples=resamples, seed=seed)
    numerators, denominators = sums[..., : len(scores)], sums[..., len(scores) :]
    metrics = {
        name: estimate_by_group(
            name,
            {group: float(frame.by_group.loc[group, name]) for group in names},
            float(frame.overall[name]),
            numerators[..., number],
            denominators[..., number],
            confidence,
        )
        for number, name in enumerate(scores)
    }
    counts = dict(zip(names, groups.counts.tolist(), strict=True))
    return GroupMetrics(counts, metrics, confidence, resamples)
