"""Sums of scores by group, and the metrics that follow from them: no row has to be disclosed.

The rows themselves stay with their sites. n rows with scores s_i have the sums S = sum s_i and
P = sum s_i s_i^T. The mean of each score is S / n and n times its variance is on the diagonal of
P - S S^T / n; the difference of two scores has the sum S_j - S_k and the sum of squares
P_jj - 2 P_jk + P_kk. That is all ``metrics.intervals`` needs. So values and intervals are functions
of these sums, and equal those of the pooled rows. Scores come from a model's predictions for
encoded rows.

| symbol | name     |
|--------|----------|
| n      | counts   |
| S      | totals   |
| P      | products |

The area under the ROC curve has no such form: it follows from counts of records by score
(``metrics.auroc``), which are sums as well.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedminmax.core.examples import Examples
from fedminmax.data.tables.encoding import Encoding
from fedminmax.data.tables.groups import merged_key
from fedminmax.metrics.auroc import counts_length, counts_of, counts_of_models, curve_of
from fedminmax.metrics.by_group import AUROC, GroupMetrics, auroc_by_group, metric_by_group
from fedminmax.metrics.intervals import CONFIDENCE, Scored
from fedminmax.metrics.parity import ParityMeasure, parity_measures
from fedminmax.metrics.row_scores import (
    CALIBRATION,
    FALSE_ALARMS,
    MISSED,
    PAIRED,
    SELECTED,
    RowScore,
    score_classes,
    score_quantities,
    stacked,
)

ROWS_AT_ONCE = 8192


@dataclass(frozen=True, eq=False)
class ScoreSums:
    """By group: rows [groups], sums [groups, scores] and sums of products [groups, scores^2].

    ``curves`` [groups, ...] are counts of records by score (``auroc.counts_of``), of two classes.
    """

    counts: Tensor
    totals: Tensor
    products: Tensor
    curves: Tensor

    def __add__(self, other: "ScoreSums") -> "ScoreSums":
        """Add the sums of other rows."""
        return ScoreSums(
            self.counts + other.counts,
            self.totals + other.totals,
            self.products + other.products,
            self.curves + other.curves,
        )

    def split(self, groups: int, into: int) -> tuple["ScoreSums", "ScoreSums"]:
        """Return sums of the first groups, with all others added to one of them, and of the others.

        >>> sums = sum_scores(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 1, 2]), 3)
        >>> first, others = sums.split(2, into=1)
        >>> first.totals[:, 0].tolist(), others.totals[:, 0].tolist()
        ([1.0, 8.0], [5.0])
        """
        own = (self.counts, self.totals, self.products, self.curves)
        first = [values[:groups].clone() for values in own]
        for values, whole in zip(first, own, strict=True):
            values[into] += whole[groups:].sum(dim=0)
        return ScoreSums(*first), ScoreSums(*(values[groups:] for values in own))

    def of_models(self, numbers: Sequence[int], models: int) -> "ScoreSums":
        """Return the sums of some of the models whose scores are side by side, in this order."""
        own = torch.arange(self.totals.shape[1]).reshape(models, -1)[list(numbers)].flatten()
        curves = self.curves
        if curves.shape[1]:
            curves = torch.from_numpy(counts_of_models(curves.numpy(), numbers, models))
        return ScoreSums(self.counts, self.totals[:, own], self.products[:, own][:, :, own], curves)

    @property
    def covariances(self) -> Tensor:
        """Return the rows of each group times the scores' covariances [groups, scores, scores]."""
        squares = self.totals[:, :, None] * self.totals[:, None, :]
        return self.products - squares / self.counts.clamp(min=1)[:, None, None]


def empty_sums(groups: int, names: Sequence[str], models: int) -> ScoreSums:
    """Return the sums over no rows of these metrics of so many models."""
    scores = 2 * len(names) * models
    return ScoreSums(
        torch.zeros(groups, dtype=torch.int64),
        torch.zeros(groups, scores, dtype=torch.float64),
        torch.zeros(groups, scores, scores, dtype=torch.float64),
        torch.zeros(groups, curves_length(names, models), dtype=torch.int64),
    )


def curves_length(names: Sequence[str], models: int) -> int:
    """Return how many counts by score a group has, of so many models with these metrics."""
    return counts_length(models) if {CALIBRATION, MISSED} <= {*names} else 0


def sum_scores(scores: Tensor, group: Tensor, groups: int, names: Sequence[str] = ()) -> ScoreSums:
    """Sum scores [rows, scores] within each group; of these metrics of each model, also curves.

    >>> found = sum_scores(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 0, 1]), 3)
    >>> found.counts.tolist(), found.totals[:, 0].tolist(), found.products[:, 0, 0].tolist()
    ([2, 1, 0], [4.0, 5.0, 0.0], [10.0, 25.0, 0.0])
    """
    own = [scores[group == number].double() for number in range(groups)]
    return ScoreSums(
        torch.tensor([len(rows) for rows in own]),
        torch.stack([rows.sum(dim=0) for rows in own]),
        torch.stack([rows.T @ rows for rows in own]),
        _curves(scores.numpy(), group.numpy(), groups, names),
    )


def _curves(
    scores: NDArray[np.float64], group: NDArray[np.int64], groups: int, names: Sequence[str]
) -> Tensor:
    """Count records by the probabilities that scores side by side are made of."""
    if not curves_length(names, 1):
        return torch.zeros(groups, 0, dtype=torch.int64)
    models = scores.shape[1] // (2 * len(names))
    columns = scores.reshape(len(scores), models, 2, len(names))
    positive = columns[:, 0, 1, names.index(MISSED)]
    probabilities = columns[:, :, 0, names.index(CALIBRATION)] + positive[:, None]
    return torch.from_numpy(counts_of(probabilities, positive > 0, group, groups))


def metrics_from_sums(
    names: Sequence[str], sums: ScoreSums, model: int, small: Collection[int] = ()
) -> GroupMetrics:
    """Return one model's metrics; groups are named by their numbers, and need a row.

    Args:
        names: the metrics, in the order of the scores: each model has all numerators, then all
            denominators.
        sums: of all models, side by side.
        model: which of them.
        small: groups that are never the worst off, because they were too small in training.
    """
    present = sums.counts.nonzero().flatten().tolist()
    squares = sums.products.diagonal(dim1=1, dim2=2)
    scored, numbers = {}, [str(own) for own in small]
    for name in names:
        above = _column(names, model, name)
        below = above + len(names)
        scored[name] = {
            str(group): Scored.of_sums(
                max(0, round(float(sums.totals[group, below]))),
                float(sums.totals[group, above]),
                float(squares[group, above]),
            )
            for group in present
        }
    metrics = {
        name: metric_by_group(name, own, CONFIDENCE, numbers) for name, own in scored.items()
    }
    if sums.curves.shape[1]:
        curves = {str(group): curve_of(sums.curves[group].numpy(), model) for group in present}
        everyone = curve_of(sums.curves.sum(dim=0).numpy(), model)
        metrics[AUROC] = auroc_by_group(curves, everyone, CONFIDENCE, numbers)
    counts = {str(group): int(sums.counts[group]) for group in present}
    return GroupMetrics(counts, metrics, CONFIDENCE, parity_measures(scored, CONFIDENCE, numbers))


def parity_from_totals(
    names: Sequence[str], totals: Tensor, small: Collection[int] = ()
) -> dict[str, ParityMeasure]:
    """Return the first model's differences and ratios from totals of its scores by group."""
    scored: dict[str, dict[str, Scored]] = {}
    for name in {SELECTED, MISSED, FALSE_ALARMS} & {*names}:
        place = names.index(name)
        scored[name] = {
            # A record's score is 0 or 1, and so is its square.
            str(group): Scored.of_sums(round(rows), chosen, chosen)
            for group, (chosen, rows, all_rows) in enumerate(
                totals[:, [place, place + len(names), len(names)]].tolist()
            )
            if all_rows
        }
    return parity_measures(scored, CONFIDENCE, [str(own) for own in small])


def positives_of(names: Sequence[str], sums: ScoreSums) -> tuple[int, ...]:
    """Return the rows of the positive class by group; () without one."""
    if MISSED not in names:
        return ()
    return tuple(sums.totals[:, names.index(MISSED) + len(names)].round().long().tolist())


def paired_sums_of(names: Sequence[str], sums: ScoreSums) -> dict[str, ScoreSums]:
    """Return the first two models' score sums, side by side, by metric.

    Each counts the rows that its metric is about, which are the same rows for both models.
    """
    pairs = {}
    for name in names:
        if name in PAIRED:
            columns = torch.tensor([_column(names, model, name) for model in (0, 1)])
            pairs[name] = ScoreSums(
                sums.totals[:, columns[0] + len(names)].round().long().clamp(min=0),
                sums.totals[:, columns],
                sums.products[:, columns][:, :, columns],
                sums.curves[:, :0],
            )
    return pairs


def _column(names: Sequence[str], model: int, metric: str) -> int:
    """Return the column of a model's numerators of a metric among the scores."""
    return model * 2 * len(names) + list(names).index(metric)


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
    names = metric_names(encoding)
    return sum_scores(scores, lines, groups + len(encoding.merged_groups), names)


def within_groups(totals: Tensor, encoding: Encoding) -> Tensor:
    """Return totals by group from those by line: merged groups are within theirs."""
    groups = len(encoding.groups)
    first = totals[:groups].clone()
    if encoding.merged_groups:
        first[encoding.groups.index(merged_key(encoding.schema))] += totals[groups:].sum(dim=0)
    return first


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
