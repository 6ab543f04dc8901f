"""Sums over rows by group that suffice for means and their errors: no row has to be shown.

With n rows that score s_i, a resample of the bootstrap (Efron, Annals of Statistics 1979) draws n
of them with replacement, and its sum has expectation S = sum s_i and covariance P - S S^T / n with
P = sum s_i s_i^T. For all but small groups the sum is close to normal, so these three numbers n, S
and P say what the rows would.

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

    @property
    def covariances(self) -> Tensor:
        """Return the covariance of a resample's sums [groups, scores, scores]."""
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
