"""What an adversary chooses from if some players have fixed weights, as groups too small to play.

With s the sum of the fixed weights rho_b, its weights are mu_b = rho_b for fixed b, and mu_a >=
epsilon with sum 1 - s for the others. That is a plain simplex over nu = mu / (1 - s), if every
other player's risk is replaced by

    R_a = (1 - s) r_a + sum_b rho_b r_b,    that is R = M r and mu = M' nu,

since mu . r = nu . R. Gradients, curvatures and lines below the risks mix in the same way, so that
whatever is computed or proved with R is true of this game.

| symbol  | name     |
|---------|----------|
| rho     | shares   |
| 1 - s   | free     |
| epsilon | floor    |
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class FixedShares:
    """Each player's share [m], and which players may be chosen [m]: the others keep their share."""

    shares: Tensor
    playable: Tensor

    @property
    def free(self) -> float:
        """The weight that the adversary may distribute."""
        return 1.0 - float(self.shares[~self.playable].sum())

    def mix(self, values: Tensor) -> Tensor:
        """Return M values: a line for each playable player, of risks or anything linear in them.

        >>> shares = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
        >>> fixed = FixedShares(shares, torch.tensor([True, True, False]))
        >>> fixed.mix(torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)).tolist()
        [1.75, 2.5]
        """
        if bool(self.playable.all()):
            return values
        small = self.shares[~self.playable].to(values)
        fixed: Tensor = torch.tensordot(small, values[~self.playable], dims=1)
        return self.free * values[self.playable] + fixed

    def floor(self, epsilon: float) -> float:
        """Return the least nu of a playable player."""
        return epsilon / self.free

    def chosen(self, weights: Tensor) -> Tensor:
        """Return nu of these weights mu."""
        return weights[self.playable] / self.free

    def weights(self, chosen: Tensor) -> Tensor:
        """Return mu = M' nu."""
        weights = self.shares.clone()
        weights[self.playable] = self.free * chosen
        return weights
