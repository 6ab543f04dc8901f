"""Golden values and refusals of the projection on {x >= epsilon, sum x = 1}.

(.9, .6): tau = .25. (1.2, .15): tau = .2 and the second entry is cut off. (0, 0, 0, 5) with
epsilon = .02 leaves 1 - 3 * .02 for the last. A clip-and-renormalise would give (.6, .4) first.
"""

import math

import numpy as np
import pytest
import torch

from fedminmax.core.errors import InputError
from fedminmax.core.solvers.simplex import ascend_on_simplex, project_on_simplex
from tests.problems import to_numpy


def vector(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(
    ("values", "epsilon", "expected"),
    [
        ((0.9, 0.6), 0.0, (0.65, 0.35)),
        ((1.2, 0.15), 0.0, (1.0, 0.0)),
        ((1.2, 0.15), 0.05, (0.95, 0.05)),
        ((0.0, 0.0, 0.0, 5.0), 0.02, (0.02, 0.02, 0.02, 0.94)),
        ((7.0,), 0.0, (1.0,)),
        ((-3.0, -3.0), 0.0, (0.5, 0.5)),
    ],
)
def test_golden_values(
    values: tuple[float, ...], epsilon: float, expected: tuple[float, ...]
) -> None:
    got = project_on_simplex(vector(*values), floor=epsilon)
    np.testing.assert_allclose(to_numpy(got), expected, atol=1e-15)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10, 49])
def test_a_floor_that_fills_the_simplex_leaves_only_the_uniform_point(size: int) -> None:
    values = torch.linspace(-2.0, 5.0, size, dtype=torch.float64)
    got = project_on_simplex(values, floor=1.0 / size)
    np.testing.assert_allclose(to_numpy(got), np.full(size, 1.0 / size), atol=1e-15)


def test_the_result_is_double_precision_whatever_came() -> None:
    assert project_on_simplex(torch.tensor([0.9, 0.6])).dtype == torch.float64


def test_the_argument_is_not_changed() -> None:
    values = vector(1.2, 0.15)
    project_on_simplex(values, floor=0.05)
    assert values.tolist() == [1.2, 0.15]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_are_refused(bad: float) -> None:
    with pytest.raises(InputError, match="finite"):
        project_on_simplex(vector(0.5, bad))


@pytest.mark.parametrize("floor", [0.51, 1.0, -0.01])
def test_an_impossible_floor_is_refused_with_the_possible_range(floor: float) -> None:
    with pytest.raises(InputError, match=r"between 0 and 0\.5"):
        project_on_simplex(vector(0.5, 0.5), floor=floor)


@pytest.mark.parametrize("shape", [(0,), (2, 2), ()])
def test_anything_but_a_vector_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="vector"):
        project_on_simplex(torch.zeros(shape))


def test_ascent_by_hand() -> None:
    """(.5, .5) + .1 (.4825, .2125) = (.54825, .52125); tau = .03475."""
    got = ascend_on_simplex(
        vector(0.5, 0.5), vector(0.4825, 0.2125), torch.tensor([True, True]), rate=0.1
    )
    np.testing.assert_allclose(to_numpy(got), [0.5135, 0.4865], atol=1e-15)


def test_an_absent_entry_keeps_its_weight_and_the_others_share_what_they_had() -> None:
    """Present (.2, .3) + .1 (1, 3) = (.3, .6) projected on sum = .5: tau = .2."""
    present = torch.tensor([True, False, True])
    got = ascend_on_simplex(vector(0.2, 0.5, 0.3), vector(1.0, math.nan, 3.0), present, rate=0.1)
    assert float(got[1]) == 0.5
    np.testing.assert_allclose(to_numpy(got), [0.1, 0.5, 0.4], atol=1e-15)


def test_absent_is_not_risk_zero() -> None:
    """With risk 0 for the absent entry its weight would fall to .5 + 0 - tau, tau = .4 / 3."""
    weights, present = vector(0.2, 0.5, 0.3), torch.tensor([True, False, True])
    got = ascend_on_simplex(weights, vector(1.0, 0.0, 3.0), present, rate=0.1)
    assert float(got[1]) == 0.5
    assert float(got[1]) > 0.5 - 0.4 / 3 + 0.1


def test_nobody_present_changes_nothing() -> None:
    weights = vector(0.2, 0.8)
    got = ascend_on_simplex(weights, vector(math.nan, math.nan), torch.zeros(2).bool(), rate=1.0)
    assert torch.equal(got, weights)


def test_present_entries_without_any_mass_stay_at_zero() -> None:
    present = torch.tensor([False, True, True])
    got = ascend_on_simplex(vector(1.0, 0.0, 0.0), vector(math.nan, 2.0, 1.0), present, rate=1.0)
    assert got.tolist() == [1.0, 0.0, 0.0]


def test_the_floor_also_holds_among_those_present() -> None:
    """(.1, .4) + (9, 0) on {x >= .1, sum = .5}: (.4, .1)."""
    present = torch.tensor([True, True, False])
    got = ascend_on_simplex(
        vector(0.1, 0.4, 0.5), vector(9.0, 0.0, math.nan), present, rate=1.0, floor=0.1
    )
    np.testing.assert_allclose(to_numpy(got), [0.4, 0.1, 0.5], atol=1e-15)
