"""Ramps span the linear splines: numpy's interpolation is the outside word on them."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedminmax.data.splines import HEIGHT, KNOTS, SplineFeatures, largest_squares, ramps

numbers = st.lists(st.floats(-6, 6), min_size=1, max_size=20)
values = st.lists(st.floats(-3, 3), min_size=len(KNOTS), max_size=len(KNOTS))


@given(numbers, values, st.floats(-2, 2))
def test_every_spline_is_a_linear_model_of_ramps_and_the_number(
    z: list[float], at_knots: list[float], slope: float
) -> None:
    """Between knots it interpolates the values there; beyond the outer ones it has one slope."""
    points = torch.tensor(z, dtype=torch.float64)
    level = np.array(at_knots) - slope * np.array(KNOTS)
    weights = torch.tensor(np.diff(level)) / HEIGHT
    found = level[0] + slope * points + ramps(points) @ weights
    beyond = slope * (points.numpy() - np.clip(points.numpy(), KNOTS[0], KNOTS[-1]))
    expected = np.interp(points.numpy(), KNOTS, at_knots) + beyond
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-12)


@given(numbers)
def test_no_row_of_ramps_is_longer_than_said(z: list[float]) -> None:
    squares = ramps(torch.tensor(z, dtype=torch.float64)).square().sum(dim=1)
    assert float(squares.max()) <= largest_squares(KNOTS) * (1 + 1e-12)
    assert float(ramps(torch.tensor([9.0])).square().sum()) > 0.999 * largest_squares(KNOTS)


def test_only_the_named_columns_are_expanded() -> None:
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    wide = SplineFeatures([2])(x)
    assert torch.equal(wide[:, :3], x)
    assert torch.equal(wide[:, 3:], ramps(x[:, 2]))
