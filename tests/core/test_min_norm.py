"""The shortest mixture: certified by duality and by another solver's other formulation."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog, nnls

from fedminmax.core.solvers.simplex import min_norm_weights
from tests.problems import Vector, to_numpy

EXACT = 1e-11


def solve(vectors: Vector, centre: Vector, radius: float) -> Vector:
    gram = torch.from_numpy(vectors @ vectors.T)
    return to_numpy(min_norm_weights(gram, torch.from_numpy(centre), radius))


def least_slope(slopes: Vector, low: Vector, high: Vector) -> float:
    """Return the least <slopes, lambda> over the simplex inside the box."""
    answer = linprog(slopes, A_eq=np.ones((1, len(slopes))), b_eq=[1.0], bounds=np.c_[low, high])
    assert answer.status == 0
    assert answer.fun is not None
    return float(answer.fun)


@st.composite
def vectors_and_centres(draw: st.DrawFn) -> tuple[Vector, Vector]:
    """Vectors that are often dependent, repeated, opposite or zero, and shares."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    count = draw(st.integers(1, 12))
    size = draw(st.sampled_from([1, 2, 3, 20]))
    vectors = rng.normal(size=(count, size)) + draw(st.sampled_from([0.0, 1.0]))
    vectors *= 10.0 ** rng.uniform(-draw(st.sampled_from([0.0, 3.0])), 0.0, size=(count, 1))
    vectors[-1] = vectors[0] * draw(st.sampled_from([1.0, -1.0, 0.0]))
    sparse = draw(st.sampled_from([0.1, 1.0, 10.0]))
    return vectors, rng.dirichlet(np.full(count, sparse))


@given(vectors_and_centres(), st.sampled_from([0.0, 1e-3, 0.05, 0.1, 0.5, 1.0]))
def test_no_allowed_weights_are_better(both: tuple[Vector, Vector], radius: float) -> None:
    """f(lambda) - f(best) <= 2 (<G lambda, lambda> - min over allowed v of <G lambda, v>)."""
    vectors, centre = both
    weights = solve(vectors, centre, radius)
    low, high = np.maximum(centre - radius, 0.0), np.minimum(centre + radius, 1.0)
    assert abs(weights.sum() - 1.0) < 1e-12
    assert (weights >= low - 1e-12).all()
    assert (weights <= high + 1e-12).all()
    scale = max((vectors**2).sum(axis=1).max(), 1e-300)
    slopes = vectors @ (weights @ vectors) / scale
    assert 2.0 * (slopes @ weights - least_slope(slopes, low, high)) < 1e-9


@given(vectors_and_centres())
def test_on_the_whole_simplex_it_is_a_non_negative_least_squares_problem(
    both: tuple[Vector, Vector],
) -> None:
    """min |D w|^2 + (sum w - 1)^2 over w >= 0 is reached at a multiple of the best weights."""
    vectors, centre = both
    rows = np.vstack([vectors.T, np.ones(len(vectors))])
    target = np.append(np.zeros(vectors.shape[1]), 1.0)
    multiple = nnls(rows, target)[0]
    expected = multiple / multiple.sum() @ vectors
    shortest = solve(vectors, centre, 1.0) @ vectors
    assert shortest @ shortest == pytest.approx(expected @ expected, abs=1e-10)


@pytest.mark.parametrize(
    ("vectors", "radius", "expected"),
    [
        ([[1.0, 0.0], [0.0, 1.0]], 1.0, [0.5, 0.5]),
        ([[1.0, 0.0], [0.0, 2.0]], 1.0, [0.8, 0.2]),
        ([[1.0, 0.0], [0.0, 2.0]], 0.1, [0.6, 0.4]),
        ([[1.0, 0.0], [0.0, 2.0]], 0.0, [0.5, 0.5]),
        ([[1.0, 0.0], [3.0, 0.0]], 1.0, [1.0, 0.0]),
        ([[1.0, 0.0], [-3.0, 0.0]], 1.0, [0.75, 0.25]),
        ([[0.0, 0.0], [0.0, 0.0]], 1.0, [0.5, 0.5]),
    ],
)
def test_small_answers(vectors: list[list[float]], radius: float, expected: list[float]) -> None:
    weights = solve(np.array(vectors), np.array([0.5, 0.5]), radius)
    assert weights == pytest.approx(expected, abs=EXACT)


@pytest.mark.parametrize("corner", [0, 1, 2])
def test_a_centre_in_a_corner_can_be_left(corner: int) -> None:
    """For orthogonal vectors of squared lengths s the best weights are proportional to 1 / s."""
    squares = np.array([1.0, 2.0, 4.0])
    weights = solve(np.diag(np.sqrt(squares)), np.eye(3)[corner], 1.0)
    assert weights == pytest.approx(1.0 / squares / (1.0 / squares).sum(), abs=EXACT)


@pytest.mark.parametrize("size", [3, 400])
def test_forty_sites(size: int) -> None:
    vectors = np.random.default_rng(size).normal(size=(40, size)) + 1.0
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    for radius in (0.01, 0.1, 1.0):
        weights = solve(vectors, np.full(40, 1 / 40), radius)
        slopes = vectors @ (weights @ vectors)
        low, high = np.full(40, max(0.0, 1 / 40 - radius)), np.full(40, min(1.0, 1 / 40 + radius))
        assert slopes @ weights - least_slope(slopes, low, high) < 1e-10
        assert not np.allclose(weights, 1 / 40, atol=1e-4)
