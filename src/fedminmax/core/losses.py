"""Losses per example: one number for each row, never a mean, so that sites can return sums.

For our own losses there are also explicit gradients in the model's outputs, and functions that
return loss and gradient from one pass. Full-batch steps need both: common parts are computed once,
and nothing is stored for autograd. The losses are the same numbers either way.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

Loss = Callable[[Tensor, Tensor], Tensor]
"""Maps model outputs [n, ...] and targets [n] to losses [n]."""
LossWithGradient = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Maps model outputs [n, c] and targets [n] to losses [n] and gradients [n, c]."""


def brier_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Sum over classes of (softmax(outputs) - one-hot target) squared.

    Brier: Verification of forecasts expressed in terms of probability, Monthly Weather Review 1950.
    We take the sum over classes (range 0 to 2), which is the convention behind Papadaki et al.
    2021.

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


def brier_gradient(outputs: Tensor, targets: Tensor) -> Tensor:
    """Gradient of each row's Brier loss in its outputs: 2 p_c (e_c - sum_j p_j e_j), e = p - y.

    >>> brier_gradient(torch.zeros(1, 2), torch.tensor([1])).tolist()
    [[0.5, -0.5]]
    """
    probabilities = torch.softmax(outputs, dim=1)
    pulls = _minus_one_hot(probabilities, targets).mul_(probabilities)
    return pulls.sub_(probabilities * pulls.sum(dim=1, keepdim=True)).mul_(2.0)


def cross_entropy_gradient(outputs: Tensor, targets: Tensor) -> Tensor:
    """Gradient of each row's cross-entropy in its outputs: p - y."""
    return _minus_one_hot(torch.softmax(outputs, dim=1), targets)


def squared_error_gradient(outputs: Tensor, targets: Tensor) -> Tensor:
    """Gradient of each row's squared error in its output: 2 (output - target)."""
    return (outputs - targets.reshape(outputs.shape)).mul_(2.0)


def _minus_one_hot(probabilities: Tensor, targets: Tensor) -> Tensor:
    minus_one = probabilities.new_full((len(targets), 1), -1.0)
    return probabilities.scatter_add(1, targets.unsqueeze(1), minus_one)


# For thousands of small steps, building and walking autograd's graph of a loss costs more than
# these lines; any other loss is differentiated by autograd.
EXPLICIT_GRADIENTS: dict[Loss, Callable[[Tensor, Tensor], Tensor]] = {
    brier_loss: brier_gradient,
    cross_entropy_loss: cross_entropy_gradient,
    squared_error_loss: squared_error_gradient,
}


def explicit_gradient_of(loss: Loss) -> Callable[[Tensor, Tensor], Tensor] | None:
    """Return the gradient by row of one of our own losses; None for any other."""
    # Found by identity: a user's loss may be an object that has no hash.
    return next((own for known, own in EXPLICIT_GRADIENTS.items() if known is loss), None)


# Their names in configuration files and on the command line.
LOSSES_BY_NAME: dict[str, Loss] = {
    "brier": brier_loss,
    "cross_entropy": cross_entropy_loss,
    "squared_error": squared_error_loss,
}


def chances_of(outputs: Tensor) -> Tensor:
    """Return the softmax of outputs [n, C]: ten times as fast if each output is stored by itself.

    >>> chances_of(torch.zeros(2, 1).T).tolist()
    [[0.5, 0.5]]
    """
    by_output = outputs.T.is_contiguous()
    return torch.softmax(outputs.T, dim=0).T if by_output else torch.softmax(outputs, dim=1)


def log_chances_of(outputs: Tensor) -> Tensor:
    """Return the logarithms of the softmax, likewise."""
    by_output = outputs.T.is_contiguous()
    return torch.log_softmax(outputs.T, dim=0).T if by_output else torch.log_softmax(outputs, dim=1)


def brier_with_gradient(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """|p - e_y|^2 = |p|^2 - 2 p_y + 1, and 2 p_c (p_c - [c = y] - (|p|^2 - p_y)).

    >>> [part.tolist() for part in brier_with_gradient(torch.zeros(1, 2), torch.tensor([1]))]
    [[0.5], [[0.5, -0.5]]]
    """
    probabilities = chances_of(outputs)
    target = targets.unsqueeze(1)
    squares = probabilities.square().sum(dim=1, keepdim=True)
    hit = probabilities.gather(1, target)
    gradient = probabilities - (squares - hit)
    gradient.scatter_add_(1, target, torch.full_like(hit, -1.0))
    return (squares - 2.0 * hit + 1.0).squeeze(1), gradient.mul_(probabilities).mul_(2.0)


def cross_entropy_with_gradient(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """-log p_y, and p_c - [c = y]."""
    logarithms = log_chances_of(outputs)
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
    """Return the one-pass function of one of our own losses; None for any other."""
    return next((own for known, own in LOSSES_WITH_GRADIENTS.items() if known is loss), None)
