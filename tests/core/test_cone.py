"""Quadratic programmes with weights and multipliers: conditions of optimality, and scipy's NNLS."""

import numpy as np
import pytest
import torch
from scipy.optimize import nnls

from fedminmax.core.certificate import Cone, Cuts, bound_of, lower_bound
from fedminmax.core.solvers.cone import maximise_with_multipliers, nearest_in_cone
from fedminmax.core.solvers.simplex import maximise_on_simplex


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
