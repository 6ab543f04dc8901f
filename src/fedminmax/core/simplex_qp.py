"""Small quadratic programmes over the simplex with bounds, solved exactly up to rounding.

minimise 1/2 x' Q x - b . x over sum x = 1 and low <= x <= high, with Q positive semidefinite and
one unknown per group or holder. A primal active-set method (Nocedal, Wright: Numerical
optimization, 2006, Section 16.5): finitely many steps, also where Q is singular.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

# Relative to the largest number of the programme.
TOLERANCE = 1e-13
# What least squares leaves of slopes that can be met, at most.
LEFT_OVER = 1e-10
ROUNDING = 1e-14
# Beyond all bounds, which are at most 1 apart.
FAR = 10.0
# A weight seldom enters or leaves its bounds more than once; this ends what rounding might prolong.
STEPS_PER_WEIGHT = 50


def maximise_on_simplex(
    linear: Tensor, quadratic: Tensor, start: Tensor, floor: float = 0.0
) -> Tensor:
    """Return weights of at least ``floor`` that maximise linear . x - 1/2 x' quadratic x.

    >>> none = torch.zeros(2, 2, dtype=torch.float64)
    >>> linear = torch.tensor([1.0, 2.0], dtype=torch.float64)
    >>> maximise_on_simplex(linear, none, torch.full((2,), 0.5).double(), 0.25).tolist()
    [0.25, 0.75]
    """
    low = np.full(len(linear), floor)
    high = np.full(len(linear), 1.0 - floor * (len(linear) - 1))
    found = minimise_on_simplex(quadratic.numpy(), linear.numpy(), start.numpy(), low, high)
    return torch.from_numpy(found)


def minimise_on_simplex(
    quadratic: Array, linear: Array, start: Array, low: Array, high: Array
) -> Array:
    """Return a minimiser; ``start`` must satisfy the constraints.

    >>> minimise_on_simplex(
    ...     np.diag([1.0, 3.0]), np.zeros(2), np.full(2, 0.5), np.zeros(2), np.ones(2)
    ... ).round(9).tolist()
    [0.75, 0.25]
    """
    movable = low < high
    # A common shift of the slopes changes nothing on the simplex, and rounding less.
    shifted = linear - linear.mean()
    size = max(float(np.abs(quadratic).max()), float(np.abs(shifted).max()))
    if not movable.any() or size == 0.0:
        return start
    return _active_set(quadratic / size, shifted / size, start, low, high, movable)


def _active_set(
    quadratic: Array, linear: Array, start: Array, low: Array, high: Array, movable: Mask
) -> Array:
    """Move the free weights to their best, fix what meets a bound, free what wants to leave one."""
    weights, free = start.copy(), movable & (low < start) & (start < high)
    for _ in range(STEPS_PER_WEIGHT * len(start)):
        move, ends_at_best = _best_move(quadratic, linear, weights, free)
        bound = np.where(move < 0.0, low, high)
        room = np.full_like(weights, np.inf)
        np.divide(bound - weights, move, out=room, where=move != 0.0)
        nearest = int(room.argmin())
        if room[nearest] < 1.0:
            weights = weights + room[nearest] * move
            weights[nearest] = bound[nearest]
            free[nearest] = False
            continue
        weights = weights + move
        if not ends_at_best:
            continue
        slopes = quadratic @ weights - linear
        freed = _most_eager(slopes, weights, free, low, movable)
        if freed is None:
            break
        free[freed] = True
    return weights


def _best_move(quadratic: Array, linear: Array, weights: Array, free: Mask) -> tuple[Array, bool]:
    """Return a change of the free weights, of sum 0, and whether it ends at their best.

    It solves the optimality conditions by least squares. Where they have no solution, the objective
    falls along what is left of the slopes.
    """
    size = int(free.sum())
    move = np.zeros_like(weights)
    if size < 2:
        return move, True
    conditions = np.ones((size + 1, size + 1))
    conditions[:size, :size] = quadratic[np.ix_(free, free)]
    conditions[size, size] = 0.0
    target = np.zeros(size + 1)
    target[:size] = (linear - quadratic @ weights)[free]
    solution = np.linalg.lstsq(conditions, target, rcond=TOLERANCE)[0]
    rest = target[:size] - conditions[:size] @ solution
    rest -= rest.mean()
    # A long solution leaves rounding errors of its own size.
    if np.abs(rest).max() > LEFT_OVER + ROUNDING * np.abs(solution).max():
        # Without curvature along it, a bound is met first.
        bend = float(rest @ conditions[:size, :size] @ rest)
        move[free] = rest * min(float(rest @ rest) / max(bend, 1e-300), FAR / np.abs(rest).max())
        return move, False
    move[free] = solution[:size] - solution[:size].mean()
    return move, True


def _most_eager(slopes: Array, weights: Array, free: Mask, low: Array, movable: Mask) -> int | None:
    """Return the bounded weight that gains most by leaving its bound; None if none gains."""
    if free.any():
        level = slopes[free].mean()
    else:
        # All at bounds: mass can move from the steepest that may shrink to the least steep.
        shrink, grow = movable & (weights > low), movable & (weights <= low)
        if not shrink.any():
            return None
        level = slopes[shrink].max()
        if not grow.any() or level - slopes[grow].min() <= TOLERANCE:
            return None
        return int(np.flatnonzero(shrink)[slopes[shrink].argmax()])
    wish = np.where(weights <= low, level - slopes, slopes - level)
    wish[free | ~movable] = -np.inf
    return int(wish.argmax()) if wish.max() > TOLERANCE else None
