"""What methods over groups have in common: where their weights start, and rows weighed by them.

A group that is too small for the adversary to choose keeps its share rho_b as weight. With s the
sum of these shares, the adversary moves within

    {mu: mu_b = rho_b for small b, mu_a >= epsilon and sum mu_a = 1 - s over the others},

so that two rows with odd labels have the weight of two rows. A method leaves the small groups out
of its ascent as it does groups that nobody had in a round: they keep their weight, and the others
share what is left.
"""

import torch
from torch import Tensor

from fedminmax.core.messages import Census, Order
from fedminmax.core.simplex import project_on_simplex
from fedminmax.methods.checks import check_floor
from fedminmax.methods.method import RowWeights


def shares_within_floor(method: str, census: Census, epsilon: float) -> Tensor:
    """Return rho, moved inside the floor if a playable group is rarer than epsilon."""
    playable, shares = census.playable, census.group_shares
    free = float(shares[playable].sum())
    check_floor(method, epsilon, int(playable.sum()), "groups", free)
    if epsilon == 0:
        return shares
    weights = shares.clone()
    weights[playable] = project_on_simplex(shares[playable], floor=epsilon, total=free)
    return weights


def uniform_weights(census: Census) -> Tensor:
    """Return equal weights for all playable groups; the small ones have their share."""
    playable, shares = census.playable, census.group_shares
    return torch.where(playable, (1.0 - shares[~playable].sum()) / playable.sum(), shares)


def weigh_by_group(order: Order, holders: Tensor, counts: Tensor) -> RowWeights:
    """n_k (theta - theta_k) = eta sum_i w_{a_i} grad loss_i, on the scale n_k."""
    return RowWeights(order.weights.expand(len(holders), -1), counts.sum(dim=1).to(torch.float64))
