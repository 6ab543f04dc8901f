"""Minima within a cone: effects that may only go up are linear inequalities with multipliers.

The cone is {theta: A theta >= 0}, with one row of A for each inequality. Two problems have the same
small dual, a quadratic programme over weights alpha on the simplex and multipliers beta >= 0:

- the step: minimise over p max_a q_a(p) with A (theta + p) >= 0, for quadratic functions q_a with
  one common curvature H. The best step is p = -H^-1 (G' alpha - A' beta), and the dual is
  alpha . r - beta . A theta - 1/2 (G' alpha - A' beta)' H^-1 (G' alpha - A' beta);
- the certificate (``core.certificate``): alpha . c - |V' alpha - A' beta|^2 / (2 m).

It is solved by a primal-dual interior-point method (Mehrotra: On the implementation of a
primal-dual interior point method, 1992), which takes some twenty factorisations of a matrix of its
size, also where the programme is singular. Any weights and multipliers prove a lower bound, however
they were found.

| symbol  | name        |
|---------|-------------|
| A       | cone        |
| alpha   | weights     |
| beta    | multipliers |
| r, G, H | functions   |
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedminmax.core.solvers.max_of_quadratics import (
    LowestPoint,
    Quadratics,
    factorised,
    highest_mix,
)

MAX_STEPS = 100
# Of products of an unknown and its slack, and of squared residuals; the largest number is about 1.
# An inequality with a small multiplier has a slack of up to the root of this.
CLOSE = 1e-30
MAX_STEPS_WITHOUT_GAIN = 5
# How much of the way to the boundary a step may take.
TO_BOUNDARY = 0.995
# What rounding leaves outside of the cone is moved inside, repeatedly.
MAX_CORRECTIONS = 3


@dataclass(frozen=True, eq=False)
class Multiplied:
    """Weights [m] on the simplex, and a multiplier of each inequality [k]."""

    weights: Tensor
    multipliers: Tensor


def maximise_with_multipliers(
    linear: Tensor, quadratic: Tensor, weights: int, floor: float = 0.0
) -> Multiplied:
    """Maximise linear . x - 1/2 x' quadratic x: first ``weights`` on the simplex, then multipliers.

    ``quadratic`` [m + k, m + k] is positive semidefinite. Weights are at least ``floor``.

    >>> both = torch.tensor([[1.0, -1.0], [-1.0, 2.0]], dtype=torch.float64)
    >>> found = maximise_with_multipliers(torch.tensor([0.0, 1.0], dtype=torch.float64), both, 1)
    >>> round(float(found.weights), 9), round(float(found.multipliers), 9)
    (1.0, 1.0)
    """
    low = torch.zeros_like(linear)
    low[:weights] = floor
    gain, bends = linear - quadratic @ low, quadratic.diagonal()
    if weights:
        # A common shift of the weights' gains does not matter.
        gain[:weights] -= gain[:weights].max()
        size = float(torch.maximum(bends, gain.abs())[:weights].max())
    else:
        size = float((gain.square() / bends).max())
    size = size if size > 0.0 else 1.0
    units = torch.ones_like(linear)
    units[weights:] = (size / bends[weights:]).sqrt()
    scaled = quadratic * torch.outer(units, units) / size
    found = low + units * _interior_point(
        scaled, gain * units / size, weights, total=1.0 - weights * floor
    )
    return Multiplied(found[:weights], found[weights:])


def minimise_max_in_cone(
    functions: Quadratics, damping: Tensor, point: Tensor, cone: Tensor, floor: float = 0.0
) -> LowestPoint:
    """Minimise the maximum over steps p with cone (point + p) >= 0.

    All functions have one curvature, to whose diagonal ``damping`` [f] is added.

    >>> line = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    >>> flat = torch.ones(1, 1, 1, dtype=torch.float64)
    >>> functions = Quadratics(torch.tensor([1.0, 0.0]).double(), line, flat)
    >>> none, up = torch.zeros(1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)
    >>> round(float(minimise_max_in_cone(functions, none, 0.25 + none, up).step), 9)
    -0.25
    """
    dual = _dual(functions, damping, point, cone, floor)
    step = nearest_in_cone(cone, point + dual.step) - point
    curvature = functions.curvatures[0]
    bent = 0.5 * float(step @ (curvature @ step) + damping @ step.square())
    values = functions.values + functions.slopes @ step + bent
    return LowestPoint(step, dual.weights, highest_mix(values, floor))


def lowest_in_cone(
    functions: Quadratics, damping: Tensor, point: Tensor, cone: Tensor, floor: float = 0.0
) -> float:
    """Return a value that the maximum is not below for any such step."""
    return _dual(functions, damping, point, cone, floor).value


def nearest_in_cone(cone: Tensor, point: Tensor) -> Tensor:
    """Return the nearest point in the cone; only rounding may leave it outside.

    The rows of ``cone`` are linearly independent.

    >>> up = torch.tensor([[-1.0, 1.0]], dtype=torch.float64)
    >>> nearest_in_cone(up, torch.tensor([3.0, 1.0], dtype=torch.float64)).tolist()
    [2.0, 2.0]
    """
    outside = (-(cone @ point)).clamp(min=0.0)
    if not bool(outside.any()):
        return point
    found = maximise_with_multipliers(-(cone @ point), cone @ cone.T, 0)
    point = point + cone.T @ found.multipliers
    for _ in range(MAX_CORRECTIONS):
        outside = (-(cone @ point)).clamp(min=0.0)
        if not bool(outside.any()):
            break
        point = point + torch.linalg.lstsq(cone, outside[:, None]).solution.squeeze(1)
    return point


@dataclass(frozen=True, eq=False)
class _Dual:
    weights: Tensor
    step: Tensor
    value: float


def _dual(
    functions: Quadratics, damping: Tensor, point: Tensor, cone: Tensor, floor: float
) -> _Dual:
    players = len(functions.values)
    lines = torch.cat([functions.slopes, -cone])
    heights = torch.cat([functions.values, -(cone @ point)])
    curvature = functions.curvatures[0] + damping.diag()
    solved = torch.cholesky_solve(lines.T, factorised(curvature))
    products = lines @ solved
    found = maximise_with_multipliers(heights, 0.5 * (products + products.T), players, floor)
    both = torch.cat([found.weights, found.multipliers])
    value = float(heights @ both - 0.5 * both @ (products @ both))
    return _Dual(found.weights, -(solved @ both), value)


@dataclass(frozen=True, eq=False)
class _Iterate:
    """Unknowns y and their slacks z, both positive, and the multiplier of the weights' sum."""

    unknowns: Tensor
    slacks: Tensor
    level: float

    @property
    def product(self) -> float:
        return float(self.unknowns @ self.slacks) / len(self.slacks)

    def moved(self, change: "_Iterate", share: float) -> "_Iterate":
        return _Iterate(
            self.unknowns + share * change.unknowns,
            self.slacks + share * change.slacks,
            self.level + share * change.level,
        )

    def room(self, change: "_Iterate") -> float:
        """Return how much of a change, at most all of it, leaves no number negative."""
        values = torch.cat([self.unknowns, self.slacks])
        moves = torch.cat([change.unknowns, change.slacks])
        falls = moves < 0
        return min(1.0, float((values[falls] / -moves[falls]).min())) if bool(falls.any()) else 1.0


@dataclass(frozen=True, eq=False)
class _Newton:
    """The linear system of Newton's steps from an iterate."""

    now: _Iterate
    factor: Tensor
    tilt: Tensor
    sums: Tensor
    missing: float

    def step(self, wanted: Tensor) -> _Iterate:
        """Return the change after which products of unknowns and slacks are as wanted."""
        now, raised = self.now, 0.0
        lack = (wanted - now.unknowns * now.slacks) / now.unknowns
        both = torch.stack([lack - self.tilt, self.sums], dim=1)
        change, raising = torch.cholesky_solve(both, self.factor).unbind(dim=1)
        if bool(self.sums.any()):
            raised = (self.missing - float(self.sums @ change)) / float(self.sums @ raising)
            change = change + raised * raising
        return _Iterate(change, lack - now.slacks / now.unknowns * change, raised)


def _interior_point(matrix: Tensor, gain: Tensor, weights: int, total: float) -> Tensor:
    """Minimise 1/2 y' matrix y - gain . y over y >= 0; the ``weights`` add up to ``total``."""
    sums = (torch.arange(len(gain)) < weights).double()
    ones = torch.ones_like(gain)
    now = _Iterate(torch.where(sums > 0, total / max(weights, 1), ones), ones, 0.0)
    best, least, idle = now, math.inf, 0
    for _ in range(MAX_STEPS):
        tilt = matrix @ now.unknowns - gain - now.level * sums - now.slacks
        missing = total - float(sums @ now.unknowns) if weights else 0.0
        worst = max(now.product, float(tilt.square().max()), missing**2)
        best, idle = (now, 0) if worst < least else (best, idle + 1)
        least, ratios = min(worst, least), now.slacks / now.unknowns
        if worst <= CLOSE or idle > MAX_STEPS_WITHOUT_GAIN or not bool(ratios.isfinite().all()):
            break
        newton = _Newton(now, factorised(matrix + ratios.diag()), tilt, sums, missing)
        ahead = newton.step(torch.zeros_like(gain))
        shrunk = now.moved(ahead, now.room(ahead)).product / now.product
        change = newton.step(shrunk**3 * now.product - ahead.unknowns * ahead.slacks)
        now = now.moved(change, TO_BOUNDARY * now.room(change))
    return best.unknowns
