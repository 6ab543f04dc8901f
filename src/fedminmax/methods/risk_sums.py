"""What a server that looks ahead knows after a round: each player's sums at the model it sent.

The players of the game are the groups, or for AFL's objective the holders.
"""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class RiskSums:
    """By player: rows [m], losses [m], gradients [m, p] and packed curvature [m, q], maybe none.

    A player without rows was not heard of in this round.
    """

    counts: Tensor
    losses: Tensor
    gradients: Tensor
    curvature: Tensor
