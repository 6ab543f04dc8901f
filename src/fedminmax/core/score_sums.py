"""Sums over rows by group that suffice for means and their errors: no row has to be shown.

n rows that score s_i have the sums S = sum s_i and P = sum s_i s_i^T. The mean of each score is
S / n and n times its variance is on the diagonal of P - S S^T / n; the difference of two scores has
the sum S_j - S_k and the sum of squares P_jj - 2 P_jk + P_kk. The intervals of
``report.mean_interval`` need no more.

| here | above |
|---|---|
| counts | n |
| totals | S |
| products | P |
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class ScoreSums:
    """By group: rows [groups], sums [groups, scores] and sums of products [groups, scores^2]."""

    counts: Tensor
    totals: Tensor
    products: Tensor

    def __add__(self, other: "ScoreSums") -> "ScoreSums":
        """Add what others have."""
        return ScoreSums(
            self.counts + other.counts,
            self.totals + other.totals,
            self.products + other.products,
        )

    def split(self, groups: int, into: int) -> tuple["ScoreSums", "ScoreSums"]:
        """Return sums of the first groups, with all others within one of them, and of the others.

        >>> sums = sum_scores(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 1, 2]), 3)
        >>> first, others = sums.split(2, into=1)
        >>> first.totals[:, 0].tolist(), others.totals[:, 0].tolist()
        ([1.0, 8.0], [5.0])
        """
        own = (self.counts, self.totals, self.products)
        first = [values[:groups].clone() for values in own]
        for values, whole in zip(first, own, strict=True):
            values[into] += whole[groups:].sum(dim=0)
        return ScoreSums(*first), ScoreSums(*(values[groups:] for values in own))

    @property
    def covariances(self) -> Tensor:
        """Return the rows of each group times the scores' covariances [groups, scores, scores]."""
        squares = self.totals[:, :, None] * self.totals[:, None, :]
        return self.products - squares / self.counts.clamp(min=1)[:, None, None]


def sum_scores(scores: Tensor, group: Tensor, groups: int) -> ScoreSums:
    """Add up scores [rows, scores] within each group.

    >>> found = sum_scores(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 0, 1]), 3)
    >>> found.counts.tolist(), found.totals[:, 0].tolist(), found.products[:, 0, 0].tolist()
    ([2, 1, 0], [4.0, 5.0, 0.0], [10.0, 25.0, 0.0])
    """
    own = [scores[group == number].double() for number in range(groups)]
    return ScoreSums(
        torch.tensor([len(rows) for rows in own]),
        torch.stack([rows.sum(dim=0) for rows in own]),
        torch.stack([rows.T @ rows for rows in own]),
    )
