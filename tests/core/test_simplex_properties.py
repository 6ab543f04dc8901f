"""What makes a point the projection P(v) on a closed convex set, tested on random vectors.

x = P(v) exactly if x is feasible and <v - x, z - x> <= 0 for every feasible z; on a simplex it
is enough to try its corners z = epsilon + (total - size epsilon) e_i. Hence P is idempotent,
non-expansive and order-preserving, and v - x is one constant tau wherever x > epsilon.
"""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedminmax.core.solvers.simplex import ascend_on_simplex, project_on_simplex
from tests.oracles import project_by_bisection
from tests.problems import Vector, to_numpy

entries = st.floats(-10.0, 10.0, allow_nan=False)
vectors = st.lists(entries, min_size=1, max_size=8).map(lambda own: np.array(own, np.float64))
fills = st.sampled_from([0.0, 0.1, 0.5, 0.99, 1.0])


def project(vector: Vector, floor: float = 0.0) -> Vector:
    return to_numpy(project_on_simplex(torch.from_numpy(vector), floor=floor))


@given(vectors, fills)
def test_the_result_is_feasible(vector: Vector, fill: float) -> None:
    floor = fill / len(vector)
    x = project(vector, floor)
    assert x.min() >= floor
    assert abs(x.sum() - 1.0) < 1e-14 * len(vector)


@given(vectors, fills)
def test_no_corner_of_the_simplex_is_on_the_side_of_the_vector(vector: Vector, fill: float) -> None:
    floor = fill / len(vector)
    x = project(vector, floor)
    for corner in np.eye(len(vector)) * (1.0 - fill) + floor:
        assert (vector - x) @ (corner - x) <= 1e-12


@given(vectors, fills)
def test_agreement_with_bisection_on_the_multiplier(vector: Vector, fill: float) -> None:
    floor = fill / len(vector)
    expected = project_by_bisection(vector, floor=floor)
    np.testing.assert_allclose(project(vector, floor), expected, rtol=0, atol=1e-13)


@given(vectors, st.sampled_from([0.25, 0.5, 2.0]))
def test_agreement_for_another_total(vector: Vector, total: float) -> None:
    got = to_numpy(project_on_simplex(torch.from_numpy(vector), total=total))
    np.testing.assert_allclose(got, project_by_bisection(vector, total=total), rtol=0, atol=1e-13)


@given(vectors, fills)
def test_projecting_twice_is_projecting_once(vector: Vector, fill: float) -> None:
    floor = fill / len(vector)
    once = project(vector, floor)
    np.testing.assert_allclose(project(once, floor), once, rtol=0, atol=1e-15)


@given(st.lists(st.tuples(entries, entries), min_size=1, max_size=8), fills)
def test_it_never_moves_two_vectors_apart(pairs: list[tuple[float, float]], fill: float) -> None:
    u, v = np.array(pairs).T
    floor = fill / len(pairs)
    apart = np.linalg.norm(project(u, floor) - project(v, floor))
    assert apart <= np.linalg.norm(u - v) + 1e-14


@given(vectors, fills)
def test_the_order_of_entries_is_kept(vector: Vector, fill: float) -> None:
    sorted_result = project(vector, fill / len(vector))[np.argsort(vector)]
    assert (np.diff(sorted_result) >= 0).all()


@given(vectors, fills)
def test_the_same_amount_is_taken_from_every_entry_above_the_floor(
    vector: Vector, fill: float
) -> None:
    floor = fill / len(vector)
    x = project(vector, floor)
    taken = (vector - x)[x > floor + 1e-12]
    if len(taken):
        assert np.ptp(taken) < 1e-13


@given(vectors, st.sampled_from([-1e9, -3.0, 0.5, 1e9]))
def test_a_common_shift_changes_nothing(vector: Vector, shift: float) -> None:
    """Adding 1e9 rounds each entry to 2^-23, so the shifted numbers themselves are compared."""
    shifted = vector + shift
    expected = project_by_bisection(shifted - shift)
    np.testing.assert_allclose(project(shifted), expected, rtol=0, atol=1e-13)


weights_and_risks = st.lists(
    st.tuples(st.floats(0.01, 1.0), st.floats(0.0, 2.0), st.booleans()), min_size=1, max_size=6
)


@given(weights_and_risks, st.sampled_from([0.0, 0.1, 10.0]))
def test_ascent_keeps_the_mass_and_everyone_who_was_absent(
    entries_seen: list[tuple[float, float, bool]], rate: float
) -> None:
    raw, risks, seen = (np.array(column) for column in zip(*entries_seen, strict=True))
    weights, present = raw / raw.sum(), seen.astype(bool)
    unseen_risks = np.where(present, risks, np.nan)
    got = to_numpy(
        ascend_on_simplex(
            torch.from_numpy(weights),
            torch.from_numpy(unseen_risks),
            torch.from_numpy(present),
            rate=rate,
        )
    )
    assert (got[~present] == weights[~present]).all()
    assert abs(got.sum() - 1.0) < 1e-14
    if present.any():
        expected = project_by_bisection(
            (weights + rate * risks)[present], total=float(weights[present].sum())
        )
        np.testing.assert_allclose(got[present], expected, rtol=0, atol=1e-13)
