"""The minimum of the maximum of several quadratic functions, by its small dual.

minimise over p:  max_a q_a(p),  q_a(p) = r_a + g_a . p + 1/2 p' H_a p,  H_a positive semidefinite.

The dual function D(mu) = min over p of sum_a mu_a q_a(p) is concave on the simplex, with gradient
q(p(mu)) and Hessian -J H(mu)^-1 J', where H(mu) = sum_a mu_a H_a and J_a = g_a + H_a p. Newton's
method on it solves a quadratic programme of one unknown per group in each step, and converges
quadratically; the difference between the highest q_a and D is its gap. With linear
functions and a common H this is the prox-linear step (Drusvyatskiy, Paquette: Efficiency of
minimizing compositions of convex functions and smooth maps, 2019).

If no function with a positive weight bends in some direction (such as the indicator column of a
group of weight 0), H(mu) is singular and p(mu) is arbitrary there, although functions of weight 0
depend on it. ``minimise_max_exactly`` therefore adds a small multiple of |p - c|^2, moves the
centre c to the minimum and repeats, with smaller and smaller multiples (Rockafellar: Monotone
operators and the proximal point algorithm, 1976). What it can still miss is not judged by these
steps: D of any weights is below the minimum of the maximum (weak duality).

| symbol | name       |
|--------|------------|
| r      | values     |
| g_a    | slopes     |
| H_a    | curvatures |
| p      | step       |
| mu     | weights    |

Coordinates in which a column's mean does not matter: the intercept at the columns' centre.

A linear model w . x + b is w . (x - m) + (b + w . m). If a column's mean m is large beside its
deviation d, the direction (1, -m) is flat: its curvature is d^2, where the diagonal of the
curvature has m^2. A damping in proportion to that diagonal then freezes it, and a step along it
seems to promise nothing. With b + w . m in place of b, the diagonal has d^2.

| symbol | name   |
|--------|--------|
| m      | centre |
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedminmax.core.linear_structure import LinearStructure
from fedminmax.core.solvers.simplex import maximise_on_simplex

MAX_NEWTON_STEPS = 50
MAX_HALVINGS = 40
# Relative to the predicted decrease. Newton's last step costs little, and if the functions are the
# whole problem (squared error), the gap left here is never closed later.
RELATIVE_GAP = 1e-12
ROUNDING = 1e-15
UNSEEN_RISE = 1e-12
# Of proximal steps, in units of the smallest damping, which is 1e-12 of the largest curvatures.
PROXIMAL_FACTORS = (1.0, 1e9, 1e7, 1e5, 1e3)
MAX_SWEEPS = 4
# Relative to the value: the distance to the lower bound at which no further step is needed.
CLOSE = 1e-10


@dataclass(frozen=True, eq=False)
class Quadratics:
    """Values [A] and slopes [A, f] at 0, curvatures [A, f, f], all in float64.

    Curvatures [1, f, f] are those of every function.
    """

    values: Tensor
    slopes: Tensor
    curvatures: Tensor

    def mixed_curvature(self, weights: Tensor) -> Tensor:
        """Return the weighted sum of the curvatures [f, f]."""
        if len(self.curvatures) == 1:
            return self.curvatures[0] * weights.sum()
        mixed: Tensor = torch.tensordot(weights, self.curvatures, dims=1)
        return mixed

    def moved(self, step: Tensor) -> "Quadratics":
        """Return the same functions with another point as 0."""
        bent = self.curvatures @ step
        values = self.values + self.slopes @ step + 0.5 * bent @ step
        return Quadratics(values, self.slopes + bent, self.curvatures)


@dataclass(frozen=True, eq=False)
class LowestPoint:
    """The minimiser of the maximum, the weights that prove it, and the value there."""

    step: Tensor
    weights: Tensor
    value: float


@dataclass(frozen=True, eq=False)
class _Dual:
    """D at some weights, and what its derivatives need."""

    weights: Tensor
    step: Tensor
    values: Tensor
    slopes: Tensor
    factor: Tensor

    @property
    def value(self) -> float:
        return float(self.weights @ self.values)


def in_few_directions(functions: Quadratics, damping: Tensor) -> tuple[Quadratics, Tensor]:
    """Return functions of y with the same minima of every mixture, and the step of y [f, A].

    With one curvature K, damping included, the lowest point of a mixture of slopes G is a mixture
    of K^-1 G'. So one factorisation L L' = K serves all mixtures: with L^-1 G' = Q R, a step is
    L^-T Q y, the slopes in y are the columns of R, and the curvature is 1.
    """
    curvature = functions.curvatures[0].clone()
    curvature.diagonal().add_(damping)
    factor = factorised(curvature)
    towards = torch.linalg.solve_triangular(factor, functions.slopes.T, upper=False)
    basis, slopes = torch.linalg.qr(towards)
    step = torch.linalg.solve_triangular(factor.T, basis, upper=True)
    one = torch.eye(len(slopes), dtype=torch.float64)[None]
    return Quadratics(functions.values, slopes.T, one), step


def highest_mix(values: Tensor, floor: float) -> float:
    """Return the highest mean of the values with weights of at least ``floor``.

    >>> highest_mix(torch.tensor([1.0, 3.0], dtype=torch.float64), 0.25)
    2.5
    """
    spare = 1.0 - floor * len(values)
    return float(spare * values.max() + floor * values.sum())


def minimise_max(
    functions: Quadratics, damping: Tensor, start: Tensor, floor: float = 0.0
) -> LowestPoint:
    """Minimise the maximum, with ``damping`` [f] added to the diagonal of every curvature.

    >>> line = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    >>> flat = torch.ones(2, 1, 1, dtype=torch.float64)
    >>> functions = Quadratics(torch.tensor([1.0, 0.0], dtype=torch.float64), line, flat)
    >>> none, half = torch.zeros(1).double(), torch.full((2,), 0.5).double()
    >>> lowest = minimise_max(functions, none, half)
    >>> round(float(lowest.step), 9), [round(weight, 9) for weight in lowest.weights.tolist()]
    (-0.5, [0.75, 0.25])
    """
    dual = _dual_at(functions, damping, start)
    for _ in range(MAX_NEWTON_STEPS):
        height = highest_mix(dual.values, floor)
        promised = highest_mix(functions.values, floor) - dual.value
        if height - dual.value <= RELATIVE_GAP * promised + ROUNDING * abs(height):
            break
        products = dual.slopes @ torch.cholesky_solve(dual.slopes.T, dual.factor)
        linear = dual.values + products @ dual.weights
        wanted = maximise_on_simplex(linear, products, dual.weights, floor)
        better = _climb(functions, damping, dual, wanted, floor)
        if better is None:
            break
        dual = better
    return LowestPoint(dual.step, dual.weights, highest_mix(dual.values, floor))


def minimise_max_exactly(
    functions: Quadratics, least: Tensor, start: Tensor, floor: float = 0.0
) -> LowestPoint:
    """Minimise the maximum itself, by proximal steps; ``least`` [f] is their smallest damping.

    The weights are those with the highest ``lowest_mix`` at the point found.

    >>> line = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    >>> flat = torch.ones(2, 1, 1, dtype=torch.float64)
    >>> functions = Quadratics(torch.tensor([1.0, 0.0], dtype=torch.float64), line, flat)
    >>> half = torch.full((2,), 0.5, dtype=torch.float64)
    >>> found = minimise_max_exactly(functions, torch.full((1,), 1e-12).double(), half)
    >>> round(float(found.step), 9), round(found.value, 9)
    (-0.5, 0.625)
    """
    moved = functions
    best = LowestPoint(torch.zeros_like(least), start, highest_mix(functions.values, floor))
    for _ in range(MAX_SWEEPS):
        before, lower = best.value, lowest_mix(moved, least, best.weights)
        for factor in PROXIMAL_FACTORS:
            found = minimise_max(moved, factor * least, best.weights, floor)
            there = moved.moved(found.step)
            value = highest_mix(there.values, floor)
            if value < best.value:
                moved, best = there, replace(best, step=best.step + found.step, value=value)
            proved = lowest_mix(moved, least, found.weights)
            if proved > lower:
                lower, best = proved, replace(best, weights=found.weights)
            if best.value - lower <= CLOSE * abs(best.value):
                return best
        if before - best.value <= CLOSE * abs(best.value):
            break
    return best


def lowest_mix(functions: Quadratics, damping: Tensor, weights: Tensor) -> float:
    """Return the minimum over p of the weighted mean of the functions and of damping/2 p^2.

    It is at most the minimum over p of the highest function plus damping/2 p^2, for any weights.
    """
    return _dual_at(functions, damping, weights / weights.sum()).value


def _climb(
    functions: Quadratics, damping: Tensor, dual: _Dual, wanted: Tensor, floor: float
) -> _Dual | None:
    """Search towards the wanted weights until D rises enough (Armijo); None if it never does."""
    move = wanted - dual.weights
    rise = float(dual.values @ move)
    if rise <= UNSEEN_RISE * abs(dual.value):
        # D is flat at its top: rounding hides the rise long before the functions are level.
        there = _dual_at(functions, damping, wanted)
        gaps = [highest_mix(one.values, floor) - one.value for one in (there, dual)]
        return there if gaps[0] < gaps[1] else None
    share = 1.0
    for _ in range(MAX_HALVINGS):
        there = _dual_at(functions, damping, dual.weights + share * move)
        if there.value > dual.value + 1e-4 * share * rise:
            return there
        share *= 0.5
    return None


def _dual_at(functions: Quadratics, damping: Tensor, weights: Tensor) -> _Dual:
    curvature = functions.mixed_curvature(weights)
    curvature.diagonal().add_(damping)
    factor = factorised(curvature)
    step = -torch.cholesky_solve((weights @ functions.slopes).unsqueeze(1), factor).squeeze(1)
    bent = functions.curvatures @ step + damping * step
    values = functions.values + functions.slopes @ step + 0.5 * bent @ step
    return _Dual(weights, step, values, functions.slopes + bent, factor)


def factorised(curvature: Tensor) -> Tensor:
    """Return the Cholesky factor, with a small diagonal added if rounding requires it.

    Columns may have very different units, so each is compared with itself.
    """
    extra = 1e-14 * curvature.diagonal()
    while True:
        factor: Tensor
        factor, failed = torch.linalg.cholesky_ex(curvature)
        if not int(failed):
            return factor
        curvature = curvature + extra.diag()
        extra = 10.0 * extra


def centre_of(structure: LinearStructure, packed: Tensor) -> Tensor:
    """Return the columns' means, weighted by curvature, from its packed sums [A, q].

    The last row of each triangle belongs to the intercept; without one, the centre is 0, and so
    it is for codes.
    """
    if not structure.intercept or structure.coded:
        return torch.zeros(structure.inputs, dtype=torch.float64)
    rows = packed.reshape(-1, structure.curvature_numbers // structure.blocks).sum(dim=0)
    last = rows[-structure.columns :]
    return last[:-1] / last[-1] if float(last[-1]) > 0 else torch.zeros_like(last[:-1])


def centred(structure: LinearStructure, functions: Quadratics, centre: Tensor) -> Quadratics:
    """Return the functions of a step in w and b + w . m, given those of a step in w and b.

    >>> plain = LinearStructure(1, 1, intercept=True, loss="squared_error")
    >>> curvature = torch.tensor([[[101.0, 10.0], [10.0, 1.0]]], dtype=torch.float64)
    >>> functions = Quadratics(torch.zeros(1).double(), torch.ones(1, 2).double(), curvature)
    >>> moved = centred(plain, functions, torch.tensor([10.0]).double())
    >>> moved.curvatures.tolist(), moved.slopes.tolist()
    ([[[1.0, 0.0], [0.0, 1.0]]], [[-9.0, 1.0]])
    """
    if not structure.intercept or structure.coded:
        return functions
    players, columns = len(functions.values), structure.columns
    slopes = functions.slopes.reshape(players, -1, columns).clone()
    slopes[..., :-1] -= slopes[..., -1:] * centre
    outputs = slopes.shape[1]
    bends = functions.curvatures.reshape(players, outputs, columns, outputs, columns).clone()
    bends[:, :, :-1] -= bends[:, :, -1:] * centre[:, None, None]
    bends[..., :-1] -= bends[..., -1:] * centre
    return Quadratics(functions.values, slopes.flatten(1), bends.reshape_as(functions.curvatures))


def to_centred(structure: LinearStructure, step: Tensor, centre: Tensor) -> Tensor:
    """Return a step in w and b as one in w and b + w . m."""
    if not structure.intercept:
        return step
    rows = step.reshape(-1, structure.columns).clone()
    rows[:, -1] += rows[:, :-1] @ centre
    return rows.flatten()


def from_centred(structure: LinearStructure, step: Tensor, centre: Tensor) -> Tensor:
    """Return a step in w and b + w . m as one in w and b."""
    return to_centred(structure, step, -centre)
