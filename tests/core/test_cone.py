"""Quadratic programmes with weights and multipliers: conditions of optimality, and scipy's NNLS.

The lowest point of the highest quadratic: against scipy on the epigraph, and by weak duality.
"""

import numpy as np
import pytest
import torch
from scipy.optimize import nnls

from fedminmax.core.certificate import Cone, Cuts, bound_of, lower_bound
from fedminmax.core.solvers.cone import maximise_with_multipliers, nearest_in_cone
from fedminmax.core.solvers.max_of_quadratics import (
    Quadratics,
    highest_mix,
    lowest_mix,
    minimise_max,
    minimise_max_exactly,
)
from fedminmax.core.solvers.simplex import maximise_on_simplex
from tests.oracles import lowest_maximum
from tests.problems import Vector


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("floor", [0.0, 0.05])
def test_no_weight_and_no_multiplier_can_gain(seed: int, floor: float) -> None:
    """The conditions of Karush, Kuhn and Tucker, also where the programme is singular."""
    draws = np.random.default_rng(seed)
    weights, inequalities, size = draws.integers([1, 0, 5], [6, 60, 80])
    lines = draws.normal(size=(weights + inequalities, size))
    if seed % 3 == 1:
        lines[weights:] = lines[weights:].cumsum(axis=0)
    if seed % 3 == 2:
        lines[weights:] *= np.logspace(0, -6, size)
    room = np.abs(draws.normal(size=inequalities)) * draws.choice([0, 1, 1e-3], size=inequalities)
    linear = torch.tensor(np.r_[draws.normal(size=weights), -room])
    quadratic = torch.tensor(lines @ lines.T)
    found = maximise_with_multipliers(linear, quadratic, int(weights), floor)
    both = torch.cat([found.weights, found.multipliers])
    gains = linear - quadratic @ both
    assert float(found.weights.sum()) == pytest.approx(1.0, abs=1e-14)
    assert float(found.weights.min()) >= floor
    # In units of the numbers that are added.
    largest = max(float(both.abs().max()), 1.0)
    unit = 1e-14 * float(quadratic.abs().max()) * largest
    assert float(gains[weights:].clamp(min=0).sum()) <= unit
    assert float((found.multipliers * gains[weights:]).abs().sum()) <= unit * largest
    short = gains[:weights].max() - gains[:weights]
    assert float(((found.weights - floor) * short).sum()) <= unit * largest


def test_without_inequalities_it_is_the_simplex() -> None:
    generator = torch.Generator().manual_seed(0)
    lines = torch.randn(6, 4, generator=generator).double()
    linear = torch.randn(6, generator=generator).double()
    start = torch.full((6,), 1 / 6, dtype=torch.float64)
    quadratic = lines @ lines.T
    values = [
        float(linear @ x - 0.5 * x @ quadratic @ x)
        for x in (
            maximise_with_multipliers(linear, quadratic, 6).weights,
            maximise_on_simplex(linear, quadratic, start),
        )
    ]
    assert values[0] == pytest.approx(values[1], abs=1e-13)


@pytest.mark.parametrize("seed", range(5))
def test_the_nearest_point_is_that_of_least_squares_with_multipliers(seed: int) -> None:
    draws = np.random.default_rng(seed)
    cone, point = draws.normal(size=(8, 12)), draws.normal(size=12)
    found = nearest_in_cone(torch.tensor(cone), torch.tensor(point)).numpy()
    # point + cone' beta is nearest for the beta >= 0 that make it shortest.
    beta, _ = nnls(cone.T, -point)
    assert found == pytest.approx(point + cone.T @ beta, abs=1e-12)
    assert (cone @ found).min() >= -1e-15
    inside = nearest_in_cone(torch.tensor(cone), torch.tensor(found))
    assert inside.numpy() == pytest.approx(found, abs=1e-14)


def test_multipliers_raise_a_bound_and_any_of_them_are_valid() -> None:
    """|theta - 1|^2 / 2 with theta <= 0 is 1/2 at best; without that, 0."""
    # As a cut at 1 with ridge 1: 1/2 - theta + theta^2 / 2.
    one = torch.ones(1, dtype=torch.float64)
    cuts = Cuts(0.5 * one, -one[:, None])
    down = Cone(-one[:, None], 2.0)
    assert lower_bound(cuts, 1.0) == pytest.approx(0.0, abs=1e-12)
    assert lower_bound(cuts, 1.0, cone=down) == pytest.approx(0.5, abs=1e-12)
    for multiplier in (0.0, 0.3, 1.0, 1.5):
        wanted = 0.5 - 0.5 * (1.0 - multiplier) ** 2
        proved = bound_of(cuts, one, 1.0, down, multiplier * one)
        assert proved == pytest.approx(wanted, abs=1e-12)
        assert proved <= 0.5


def random_functions(seed: int, count: int, size: int) -> Quadratics:
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(count, size, max(size - 1, 1)))
    return Quadratics(
        torch.from_numpy(rng.normal(size=count)),
        torch.from_numpy(rng.normal(size=(count, size))),
        torch.from_numpy(roots @ roots.transpose(0, 2, 1)),
    )


def by_scipy(functions: Quadratics, damping: float) -> float:
    values, slopes, curvatures = (
        part.numpy() for part in (functions.values, functions.slopes, functions.curvatures)
    )
    size = slopes.shape[1]
    damped = curvatures + damping * np.eye(size)

    def at(step: Vector) -> tuple[Vector, Vector]:
        return values + slopes @ step + 0.5 * damped @ step @ step, slopes + damped @ step

    return lowest_maximum(at, np.zeros(size))


@pytest.mark.parametrize("seed", range(12))
def test_it_is_the_minimum_that_another_solver_finds(seed: int) -> None:
    count, size = 1 + seed % 6, 1 + seed % 5
    functions = random_functions(seed, count, size)
    damping = torch.full((size,), 0.1, dtype=torch.float64)
    start = torch.full((count,), 1.0 / count, dtype=torch.float64)
    lowest = minimise_max(functions, damping, start)
    assert lowest.value == pytest.approx(by_scipy(functions, 0.1), abs=1e-7)


@pytest.mark.parametrize("floor", [0.0, 0.05])
@pytest.mark.parametrize("seed", range(6))
def test_the_weights_prove_the_value(seed: int, floor: float) -> None:
    """min over p of sum_a mu_a q_a(p) is below every value, and equals it at the optimum.

    Where the dual is flat, rounding hides its last rise while the functions still differ by 1e-8.
    """
    functions = random_functions(seed, 8, 20)
    damping = torch.full((20,), 1e-3, dtype=torch.float64)
    start = torch.full((8,), 1 / 8, dtype=torch.float64)
    lowest = minimise_max(functions, damping, start, floor)
    curvature = torch.tensordot(lowest.weights, functions.curvatures, 1) + torch.diag(damping)
    slope = lowest.weights @ functions.slopes
    proved = lowest.weights @ functions.values - 0.5 * slope @ torch.linalg.solve(curvature, slope)
    assert float(proved) == pytest.approx(lowest.value, rel=1e-12)
    assert float(lowest.weights.min()) >= floor - 1e-12


def test_a_mix_with_a_floor() -> None:
    values = torch.tensor([1.0, 5.0, 3.0], dtype=torch.float64)
    assert highest_mix(values, 0.0) == 5.0
    assert highest_mix(values, 0.1) == pytest.approx(0.8 * 5 + 0.1 * 1 + 0.1 * 3)


@pytest.mark.parametrize("seed", range(8))
def test_a_function_without_weight_still_decides_its_own_direction(seed: int) -> None:
    """Each function bends in a direction of its own; some are low enough to have weight 0."""
    rng = np.random.default_rng(seed)
    count, size = 6, 3
    rows = np.concatenate([rng.normal(size=(count, 8, size)), np.zeros((count, 8, count))], axis=2)
    rows[np.arange(count), :, size + np.arange(count)] = 1.0
    targets = rng.normal(size=(count, 8)) * 10.0 ** rng.uniform(-2.0, 0.5, size=(count, 1))
    targets += 3.0 * rng.normal(size=(count, 1))
    functions = Quadratics(
        torch.from_numpy((targets**2).mean(axis=1)),
        torch.from_numpy(-2.0 * np.einsum("ani,an->ai", rows, targets) / 8),
        torch.from_numpy(2.0 * np.einsum("ani,anj->aij", rows, rows) / 8),
    )
    least = 1e-12 * functions.curvatures.diagonal(dim1=1, dim2=2).amax(dim=0)
    start = torch.full((count,), 1.0 / count, dtype=torch.float64)
    lowest = minimise_max_exactly(functions, least, start)
    there = functions.moved(lowest.step)
    assert float(there.values.max()) == pytest.approx(lowest.value, rel=1e-9)
    assert lowest.value <= by_scipy(functions, 0.0) * (1.0 + 1e-7)
    assert lowest_mix(there, least, lowest.weights) == pytest.approx(lowest.value, rel=1e-8)


@pytest.mark.parametrize("seed", range(6))
def test_no_weights_give_a_mix_whose_minimum_is_above_the_lowest_maximum(seed: int) -> None:
    functions = random_functions(seed, 5, 4)
    damping = torch.full((4,), 0.1, dtype=torch.float64)
    best = by_scipy(functions, 0.1)
    rng = np.random.default_rng(seed)
    for _ in range(20):
        weights = torch.from_numpy(rng.dirichlet(np.full(5, 0.3)))
        assert lowest_mix(functions, damping, weights) <= best + 1e-9
