"""A model's predictions for encoded rows, and each row's contribution to each metric."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedminmax.core.examples import Examples
from fedminmax.data.tables.encoding import Encoding
from fedminmax.data.tables.groups import merged_key
from fedminmax.metrics.row_scores import RowScore, score_classes, score_quantities, stacked
from fedminmax.metrics.sums import ScoreSums, sum_scores

ROWS_AT_ONCE = 8192


def predictions(model: nn.Module, x: Tensor, encoding: Encoding) -> NDArray[np.float64]:
    """Return probabilities [rows, classes], or quantities [rows] in the target's unit."""
    with torch.no_grad():
        parts = torch.cat([model(part) for part in torch.split(x, ROWS_AT_ONCE)])
    outputs, scale = parts.double(), encoding.target_scale
    if scale is None:
        return torch.softmax(outputs, dim=1).numpy()
    return (outputs[:, 0] * scale.deviation + scale.mean).numpy()


def score_rows(model: nn.Module, rows: Examples, encoding: Encoding) -> dict[str, RowScore]:
    """Score the model on encoded rows: every metric of this task, by name."""
    return score_predictions(predictions(model, rows.x, encoding), rows.y, encoding)


def score_table(model: nn.Module, rows: Examples, encoding: Encoding) -> Tensor:
    """Score the model on encoded rows: a column per numerator, then per denominator."""
    return torch.from_numpy(stacked(score_rows(model, rows, encoding)))


def sum_by_group(scores: Tensor, group: Tensor, merged: Tensor, encoding: Encoding) -> ScoreSums:
    """Sum scores by group and then, by themselves, of the groups that were merged into one.

    ``merged`` has each row's number among the latter, -1 for none.
    """
    groups = len(encoding.groups)
    lines = torch.where(merged >= 0, groups + merged, group)
    return sum_scores(scores, lines, groups + len(encoding.merged_groups))


def by_group(sums: ScoreSums, encoding: Encoding) -> tuple[ScoreSums, ScoreSums]:
    """Return sums by group, merged ones within theirs, and those of each merged group."""
    together = merged_key(encoding.schema)
    into = encoding.groups.index(together) if encoding.merged_groups else 0
    return sums.split(len(encoding.groups), into)


def score_predictions(
    predicted: NDArray[np.float64], y: Tensor, encoding: Encoding
) -> dict[str, RowScore]:
    """Score predictions for rows with these encoded targets."""
    target, scale = y.numpy(), encoding.target_scale
    if scale is None:
        classes = range(len(encoding.schema.target.classes))
        return score_classes(target, y_prob=predicted, classes=classes)
    return score_quantities(target.astype(np.float64) * scale.deviation + scale.mean, predicted)


def metric_names(encoding: Encoding) -> tuple[str, ...]:
    """Return the names of all metrics of this task, in the order of the scores."""
    classes = len(encoding.schema.target.classes)
    nothing = np.zeros((0, classes) if classes else 0)
    return tuple(score_predictions(nothing, torch.zeros(0, dtype=torch.int64), encoding))
