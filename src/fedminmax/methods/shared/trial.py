"""Whether candidates are better than a model that was known before, if sites are missing.

Without all rows, the risks of two candidates cannot be compared: each was measured on the rows of
other sites. But every candidate was chosen before the sites of its round reported on it. So the
mean loss of all candidates since the model that is kept, later ones with more weight (round t has
weight t), is an honest estimate of how the latest one does on rows of others; one that only looks
good on the rows that it was made from shows there. Until these are enough rows, or if the estimate
is no better, the kept model is the answer. Choosing the candidate with the lowest estimate instead
would choose the luckiest.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Trial:
    """The kept model, its worst risk, and by player weighted losses and rows of later candidates.

    ``measured`` has these rows without weights: rows count again whenever they are measured.
    """

    kept: Tensor
    risk: float
    losses: Tensor
    rows: Tensor
    measured: Tensor

    def of(self, kept: Tensor, risk: float) -> "Trial":
        """Begin again with another model to compare with."""
        none = torch.zeros_like(self.losses)
        return Trial(kept, risk, none, none, none)

    def with_round(self, number: int, losses: Tensor, counts: Tensor) -> "Trial":
        """Add what a round reports of its candidate."""
        rows = counts.double()
        return replace(
            self,
            losses=self.losses + number * losses,
            rows=self.rows + number * rows,
            measured=self.measured + rows,
        )

    def is_passed(self, counts: Tensor, playable: Tensor) -> bool:
        """Return whether candidates did better on as many rows as each player that counts has."""
        if not bool((self.measured >= counts)[playable].all()):
            return False
        return float((self.losses / self.rows)[playable].max()) < self.risk


def new_trial(start: Tensor, players: int) -> Trial:
    """Before the first round nothing is known of the start."""
    none = torch.zeros(players, dtype=torch.float64)
    return Trial(start, float("inf"), none, none, none)
