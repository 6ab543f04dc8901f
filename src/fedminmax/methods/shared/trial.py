"""Whether candidates are better than a model that was measured before, if sites are missing.

Without all records, the risks of two candidates cannot be compared: each was measured on the
records of other sites. But every candidate was chosen before the sites of its round reported on
it, so the mean loss of all candidates since the model that is kept, later ones with more weight
(round t has weight t), is an honest estimate. It is an estimate of the mean of these models, whose
risk is not above their mean risk where the loss is convex (Cesa-Bianchi, Conconi, Gentile: On the
generalization ability of on-line learning algorithms, 2004); the latest candidate alone can be far
worse. So that mean is returned once it passes: the estimate must be better than the kept model by
its standard error, which the differences between rounds show, and rest on enough records. Until
then the kept model is returned. Choosing the candidate with the lowest estimate instead would
choose the luckiest.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

# How often each player's records must have been measured on average. With half of the sites in a
# round, one in sixteen records is then still unmeasured; after a single time it is one in four.
MIN_MEASUREMENTS = 2


@dataclass(frozen=True, eq=False)
class Trial:
    """The kept model with its worst risk, and sums over the rounds of later candidates.

    ``models`` is the sum of the candidates and ``weight`` that of their weights. By player,
    ``losses`` and ``rows`` are the weighted sums, ``products`` [3, m] the sums of their products
    (losses with losses, losses with rows, rows with rows), ``measured`` the rows without weights,
    which count again whenever they are measured, and ``rounds`` how many rounds had any.
    """

    kept: Tensor
    risk: float
    models: Tensor
    weight: float
    losses: Tensor
    rows: Tensor
    products: Tensor
    measured: Tensor
    rounds: Tensor

    def with_round(self, number: int, model: Tensor, losses: Tensor, counts: Tensor) -> "Trial":
        """Add what a round reports of its candidate."""
        weighted, rows = number * losses, number * counts.double()
        return replace(
            self,
            models=self.models + number * model.double().cpu(),
            weight=self.weight + number,
            losses=self.losses + weighted,
            rows=self.rows + rows,
            products=self.products + torch.stack([weighted**2, weighted * rows, rows**2]),
            measured=self.measured + counts,
            rounds=self.rounds + (counts > 0),
        )

    def is_passed(self, counts: Tensor, included: Tensor) -> bool:
        """Return whether the candidates' mean is better for all players that count."""
        if not bool((self.measured >= MIN_MEASUREMENTS * counts)[included].all()):
            return False
        risks = self.losses / self.rows
        of_losses, of_both, of_rows = self.products
        deviations = (of_losses - 2.0 * risks * of_both + risks**2 * of_rows).clamp(min=0.0)
        errors = (deviations * self.rounds / (self.rounds - 1.0)).sqrt() / self.rows
        return float((risks + errors)[included].max()) < self.risk

    @property
    def mean(self) -> Tensor:
        """The weighted mean of the candidates."""
        return (self.models / self.weight).to(self.kept)


def new_trial(kept: Tensor, players: int, risk: float = float("inf")) -> Trial:
    """Begin to compare candidates with this model; its risk is unknown before the first round."""
    none = torch.zeros(players, dtype=torch.float64)
    return Trial(
        kept,
        risk,
        models=torch.zeros_like(kept, dtype=torch.float64, device="cpu"),
        weight=0.0,
        losses=none,
        rows=none,
        products=none.repeat(3, 1),
        measured=none,
        rounds=none,
    )
