"""Losses per example: one number for each row, never a mean, so that holders can return sums.

Brier: Verification of forecasts expressed in terms of probability, Monthly Weather Review 1950.
We take the sum over classes (range 0 to 2), which is the convention behind Papadaki et al. 2021.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

Loss = Callable[[Tensor, Tensor], Tensor]
"""Maps model outputs [n, ...] and targets [n] to losses [n]."""


def brier_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Sum over classes of (softmax(outputs) - one-hot target) squared.

    >>> brier_loss(torch.zeros(1, 2), torch.tensor([1])).tolist()
    [0.5]
    """
    probabilities = torch.softmax(outputs, dim=1)
    # |p - e_y|^2 = |p|^2 - 2 p_y + 1, which needs no one-hot matrix.
    squares = probabilities.square().sum(dim=1)
    hit = probabilities.gather(1, targets.unsqueeze(1)).squeeze(1)
    return squares - 2.0 * hit + 1.0


def cross_entropy_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Minus the logarithm of the probability given to the target class.

    >>> round(cross_entropy_loss(torch.zeros(1, 2), torch.tensor([1])).item(), 4)
    0.6931
    """
    return functional.cross_entropy(outputs, targets, reduction="none")


def squared_error_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Squared difference, for regression; outputs may be [n] or [n, 1].

    >>> squared_error_loss(torch.tensor([[3.0]]), torch.tensor([1.0])).tolist()
    [4.0]
    """
    return (outputs.reshape(targets.shape) - targets).square()
