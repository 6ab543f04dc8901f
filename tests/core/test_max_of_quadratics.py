"""The lowest point of the highest quadratic: against scipy on the epigraph, and by weak duality."""

import numpy as np
import pytest
import torch

from fedminmax.core.max_of_quadratics import Quadratics, highest_mix, minimise_max
from tests.epigraph import lowest_maximum
from tests.problems import Vector


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
