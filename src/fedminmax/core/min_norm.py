"""The shortest mixture of vectors, with weights near given ones: a small quadratic programme.

minimise |sum_k lambda_k d_k|^2 over sum_k lambda_k = 1, lambda >= 0, |lambda - lambda_0|_inf <= e.
Only inner products of the vectors matter, so the programme has one unknown per vector, however
long the vectors are. It is solved by a primal active-set method (Nocedal, Wright: Numerical
optimization, 2006, Section 16.5): exact up to rounding after finitely many steps. scipy's SLSQP
leaves gaps of 1e-9 and is slower (benchmarks/min_norm_solvers.py).

| symbol               | name    |
|----------------------|---------|
| G_jk = <d_j, d_k>    | gram    |
| G / max_k |d_k|^2    | inner   |
| lambda               | weights |
| lambda_0             | centre  |
| e                    | radius  |
| G lambda             | slopes  |
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

# Relative to the longest vector's squared length: the mixture's is at most four times this above
# the least one.
TOLERANCE = 1e-13

# A weight seldom enters or leaves its bounds more than once; this ends what rounding might prolong.
STEPS_PER_WEIGHT = 50


def min_norm_weights(gram: Tensor, centre: Tensor, radius: float) -> Tensor:
    """Return the weights of the shortest mixture; ``centre`` must lie on the simplex.

    Several weights may give the shortest mixture, which itself is unique.

    >>> gram = torch.tensor([[1.0, 0.0], [0.0, 3.0]], dtype=torch.float64)
    >>> half = torch.tensor([0.5, 0.5], dtype=torch.float64)
    >>> [round(weight, 9) for weight in min_norm_weights(gram, half, 1.0).tolist()]
    [0.75, 0.25]
    >>> [round(weight, 9) for weight in min_norm_weights(gram, half, 0.125).tolist()]
    [0.625, 0.375]
    """
    inner, start = gram.numpy(), centre.numpy()
    low, high = np.maximum(start - radius, 0.0), np.minimum(start + radius, 1.0)
    movable = low < high
    longest = inner.diagonal().max()
    if not movable.any() or longest == 0.0:
        return centre
    return torch.from_numpy(_shortest(inner / longest, start, low, high, movable))


def _shortest(inner: Array, start: Array, low: Array, high: Array, movable: Mask) -> Array:
    """Move the free weights to their best, fix what meets a bound, free what wants to leave one."""
    weights, free = start.copy(), movable.copy()
    for _ in range(STEPS_PER_WEIGHT * len(start)):
        move = _move_to_shortest(inner, weights, free)
        bound = np.where(move < 0.0, low, high)
        room = np.full_like(weights, np.inf)
        np.divide(bound - weights, move, out=room, where=move != 0.0)
        nearest = room.argmin()
        if room[nearest] < 1.0:
            weights = weights + room[nearest] * move
            weights[nearest] = bound[nearest]
            free[nearest] = False
            continue
        weights = weights + move
        slopes = inner @ weights
        slopes = slopes - slopes[free].mean()
        # At its lower bound a weight should not want to grow, at its upper one not to shrink.
        wish = np.where(weights <= low, -slopes, slopes)
        wish[free | ~movable] = -np.inf
        if wish.max() <= TOLERANCE:
            break
        free[wish.argmax()] = True
    return weights


def _move_to_shortest(inner: Array, weights: Array, free: Mask) -> Array:
    """Return the change of the free weights, of sum 0, that leads to the shortest mixture.

    It solves the optimality conditions by least squares: dependent vectors make them singular.
    """
    from scipy.linalg import lstsq

    size = int(free.sum())
    conditions = np.ones((size + 1, size + 1))
    conditions[:size, :size] = inner[np.ix_(free, free)]
    conditions[size, size] = 0.0
    target = np.zeros(size + 1)
    target[:size] = -inner[free] @ weights
    solution = lstsq(conditions, target, cond=TOLERANCE, lapack_driver="gelsy", check_finite=False)[
        0
    ][:size]
    move = np.zeros_like(weights)
    move[free] = solution - solution.mean()
    return move
