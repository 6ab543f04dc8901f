"""Metrics by group from sums of scores alone, where the rows themselves stay with their holders.

Values and intervals are functions of these sums, hence those of the pooled rows.
"""

from collections.abc import Collection, Sequence

import torch

from fedminmax.core.score_sums import ScoreSums
from fedminmax.report.mean_interval import CONFIDENCE, Scored
from fedminmax.report.metric_by_group import GroupMetrics, metric_by_group
from fedminmax.report.model_scores import PAIRED


def metrics_from_sums(
    names: Sequence[str], sums: ScoreSums, model: int, small: Collection[int] = ()
) -> GroupMetrics:
    """Return one model's metrics; groups are named by their numbers, and need a row.

    Args:
        names: the metrics, in the order of the scores: each model has all numerators, then all
            denominators.
        sums: of all models, side by side.
        model: which of them.
        small: groups that are never the worst off: the model was not trained for them.
    """
    present = sums.counts.nonzero().flatten().tolist()
    squares = sums.products.diagonal(dim1=1, dim2=2)
    metrics = {}
    for name in names:
        above = _column(names, model, name)
        below = above + len(names)
        groups = {
            str(group): Scored.of_sums(
                max(0, round(float(sums.totals[group, below]))),
                float(sums.totals[group, above]),
                float(squares[group, above]),
            )
            for group in present
        }
        metrics[name] = metric_by_group(name, groups, CONFIDENCE, [str(own) for own in small])
    counts = {str(group): int(sums.counts[group]) for group in present}
    return GroupMetrics(counts, metrics, CONFIDENCE)


def paired_sums_of(names: Sequence[str], sums: ScoreSums) -> dict[str, ScoreSums]:
    """Return sums of what the first two models score, side by side, by metric."""
    pairs = {}
    for name in names:
        if name in PAIRED:
            columns = torch.tensor([_column(names, model, name) for model in (0, 1)])
            pairs[name] = ScoreSums(
                sums.counts, sums.totals[:, columns], sums.products[:, columns][:, :, columns]
            )
    return pairs


def _column(names: Sequence[str], model: int, metric: str) -> int:
    """Return where a model's numerators of a metric are among the scores."""
    return model * 2 * len(names) + list(names).index(metric)
