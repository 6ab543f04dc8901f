"""A step size for which gradient descent on a linear model cannot overshoot.

A loss whose second derivative in the outputs is at most c has, over group a, a curvature of at most
c times the largest eigenvalue of the mean of x x^T over the group's rows (x with a 1 for the
intercept). A weighting mu of the groups has at most the largest of these, and descent falls with
any step of at most 1 / curvature and stays stable up to twice that (Nesterov, Introductory
Lectures on Convex Optimization, 2004, Theorem 2.1.14).

The eigenvalues come from power iteration, that is from sums over rows of x (x . v).
"""

from decimal import ROUND_DOWN, Context

import torch
from torch import Tensor

from fedminmax.core.linear_structure import linear_structure_of
from fedminmax.core.losses import Loss, brier_loss, cross_entropy_loss, squared_error_loss
from fedminmax.core.task import Task

# Largest second derivative in the outputs. Brier: with p the probability of the wrong class of
# two, twice the maximum of 4 p^2 (1 - p) (2 - 3 p); no number of classes has more.
OUTPUT_CURVATURES: dict[Loss, float] = {
    brier_loss: 0.6163,
    cross_entropy_loss: 0.5,
    squared_error_loss: 2.0,
}
# Enough for an estimate far less than a factor of two too low, which is the room there is.
POWER_ITERATIONS = 30
LARGEST_RATE_OF_NETWORKS = 0.1


def safe_learning_rate(
    loss: Loss, x: Tensor, group: Tensor, *, linear: bool, ridge: float = 0.0
) -> float:
    """Return 1 / (largest curvature over groups) of a linear model; a network takes at most 0.1.

    >>> x, group = torch.tensor([[1.0], [-1.0]]), torch.zeros(2, dtype=torch.int64)
    >>> safe_learning_rate(squared_error_loss, x, group, linear=True)
    0.5
    """
    largest = max(_largest_eigenvalue(x[group == number]) for number in range(int(group.max()) + 1))
    return rate_for_eigenvalue(loss, largest, linear=linear, ridge=ridge)


def safe_rate_of(task: Task, x: Tensor, group: Tensor) -> float:
    """Return the rate that a run takes if its method has none, rounded down to two digits.

    Rows that are no vectors and losses that are not ours have an unknown curvature; their models
    take 0.1, as networks do at most.
    """
    loss = next((known for known in OUTPUT_CURVATURES if known is task.loss), None)
    if loss is None or x.dim() != 2 or not x.is_floating_point():
        return LARGEST_RATE_OF_NETWORKS
    linear = linear_structure_of(task) is not None
    exact = x if x.dtype is torch.float64 else x.float()
    rate = safe_learning_rate(loss, exact, group, linear=linear, ridge=task.ridge)
    return float(rounded_rate(rate))


def rate_for_eigenvalue(loss: Loss, largest: float, *, linear: bool, ridge: float = 0.0) -> float:
    """Return the step for this largest eigenvalue over groups; a ridge curves all directions."""
    rate = 1.0 / (OUTPUT_CURVATURES[loss] * largest + ridge)
    return rate if linear else min(rate, LARGEST_RATE_OF_NETWORKS)


def rounded_rate(rate: float) -> str:
    """Round down to two digits: the same whatever the order in which rows were added up.

    >>> rounded_rate(0.46912)
    '0.46'
    """
    return str(Context(prec=2, rounding=ROUND_DOWN).create_decimal(rate))


def first_direction(features: int, dtype: torch.dtype) -> Tensor:
    """Return where power iteration starts: one number per feature, and one for the intercept."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(features + 1, generator=generator, dtype=dtype)


def sum_along(x: Tensor, direction: Tensor) -> Tensor:
    """Return the sum of x (x . v) over rows, a 1 appended to each row."""
    rows = torch.cat([x, x.new_ones(len(x), 1)], dim=1)
    return rows.T @ (rows @ direction)


def _largest_eigenvalue(x: Tensor) -> float:
    """Return the largest eigenvalue of the mean of x x^T, a 1 appended to each row."""
    rows = torch.cat([x, x.new_ones(len(x), 1)], dim=1)
    direction = first_direction(x.shape[1], x.dtype).to(x.device)
    size = torch.ones((), dtype=x.dtype)
    for _ in range(POWER_ITERATIONS):
        direction = direction / direction.norm()
        direction = rows.T @ (rows @ direction) / len(rows)
        size = direction.norm()
    return float(size)
