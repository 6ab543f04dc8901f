"""Each row's loss together with its gradient in the model's outputs, from one pass over them.

Full-batch steps need both. What they share is computed once, and nothing is kept for autograd; the
losses are the same numbers as those of ``core/losses.py``.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from fedminmax.core.losses import (
    Loss,
    brier_loss,
    cross_entropy_loss,
    squared_error_loss,
)

LossWithGradient = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Maps model outputs [n, c] and targets [n] to losses [n] and gradients [n, c]."""


def brier_with_gradient(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """|p - e_y|^2 = |p|^2 - 2 p_y + 1, and 2 p_c (p_c - [c = y] - (|p|^2 - p_y)).

    >>> [part.tolist() for part in brier_with_gradient(torch.zeros(1, 2), torch.tensor([1]))]
    [[0.5], [[0.5, -0.5]]]
    """
    probabilities = torch.softmax(outputs, dim=1)
    target = targets.unsqueeze(1)
    squares = probabilities.square().sum(dim=1, keepdim=True)
    hit = probabilities.gather(1, target)
    gradient = probabilities - (squares - hit)
    gradient.scatter_add_(1, target, torch.full_like(hit, -1.0))
    return (squares - 2.0 * hit + 1.0).squeeze(1), gradient.mul_(probabilities).mul_(2.0)


def cross_entropy_with_gradient(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """-log p_y, and p_c - [c = y]."""
    logarithms = torch.log_softmax(outputs, dim=1)
    target = targets.unsqueeze(1)
    hit = logarithms.gather(1, target)
    gradient = logarithms.exp_().scatter_add_(1, target, torch.full_like(hit, -1.0))
    return hit.neg_().squeeze(1), gradient


def squared_error_with_gradient(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """(output - target)^2, and 2 (output - target)."""
    difference = outputs - targets.reshape(outputs.shape)
    return difference.square().reshape(targets.shape), difference.mul_(2.0)


LOSSES_WITH_GRADIENTS: dict[Loss, LossWithGradient] = {
    brier_loss: brier_with_gradient,
    cross_entropy_loss: cross_entropy_with_gradient,
    squared_error_loss: squared_error_with_gradient,
}


def loss_with_gradient_of(loss: Loss) -> LossWithGradient | None:
    """Return the two from one pass for one of our own losses; None for any other."""
    return next((own for known, own in LOSSES_WITH_GRADIENTS.items() if known is loss), None)
