"""Quadratic programmes on the simplex: nobody's weights are better, by duality and linprog."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from fedminmax.core.solvers.simplex import maximise_on_simplex


@st.composite
def programmes(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor]:
    """Slopes of any size and matrices of any rank, often singular or 0."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    count = draw(st.integers(1, 12))
    rank = draw(st.integers(0, count + 2))
    factor = rng.normal(size=(count, rank)) * 10.0 ** draw(st.sampled_from([-4.0, 0.0, 4.0]))
    linear = rng.normal(size=count) * 10.0 ** draw(st.sampled_from([-4.0, 0.0, 4.0]))
    if draw(st.booleans()):
        linear[:] = linear[0]
    return torch.from_numpy(linear), torch.from_numpy(factor @ factor.T)


@given(programmes(), st.sampled_from([0.0, 0.03]))
def test_no_allowed_weights_are_better(
    programme: tuple[torch.Tensor, torch.Tensor], floor: float
) -> None:
    """f(best) - f(x) <= max over allowed v of <grad f(x), v - x> for concave f."""
    linear, quadratic = programme
    start = torch.full((len(linear),), 1.0 / len(linear), dtype=torch.float64)
    weights = maximise_on_simplex(linear, quadratic, start, floor).numpy()
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert (weights >= floor - 1e-12).all()
    slopes = linear.numpy() - quadratic.numpy() @ weights
    best = linprog(-slopes, A_eq=np.ones((1, len(slopes))), b_eq=[1.0], bounds=(floor, None))
    assert best.status == 0
    assert best.fun is not None
    size = max(float(linear.abs().max()), float(quadratic.abs().max()))
    assert -best.fun - slopes @ weights <= 1e-9 * size
