"""Row weights by group alone: what all one-step methods over groups have in common."""

import torch
from torch import Tensor

from fedminmax.core.messages import Order
from fedminmax.methods.method import RowWeights


def weigh_by_group(order: Order, holders: Tensor, counts: Tensor) -> RowWeights:
    """n_k (theta - theta_k) = eta sum_i w_{a_i} grad loss_i, on the scale n_k."""
    return RowWeights(order.weights.expand(len(holders), -1), counts.sum(dim=1).to(torch.float64))
