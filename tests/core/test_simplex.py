"""Golden values and refusals of the projection on {x >= epsilon, sum x = 1}.

(.9, .6): tau = .25. (1.2, .15): tau = .2 and the second entry is cut off. (0, 0, 0, 5) with
epsilon = .02 leaves 1 - 3 * .02 for the last. A clip-and-renormalise would give (.6, .4) first.

mu . r over the allowed weights is nu . R over a plain simplex.

What makes a point the projection P(v) on a closed convex set, tested on random vectors.

x = P(v) exactly if x is feasible and <v - x, z - x> <= 0 for every feasible z; on a simplex it
is enough to try its corners z = epsilon + (total - size epsilon) e_i. Hence P is idempotent,
non-expansive and order-preserving, and v - x is one constant tau wherever x > epsilon.

Quadratic programmes on the simplex: nobody's weights are better, by duality and linprog.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from fedminmax.core.errors import InputError
from fedminmax.core.solvers.max_of_quadratics import highest_mix
from fedminmax.core.solvers.simplex import (
    FixedShares,
    ascend_on_simplex,
    maximise_on_simplex,
    project_on_simplex,
)
from tests.oracles import project_by_bisection
from tests.problems import Vector, to_numpy


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


games = st.integers(2, 6).flatmap(
    lambda size: st.tuples(
        st.lists(st.integers(1, 99), min_size=size, max_size=size),
        st.lists(st.booleans(), min_size=size, max_size=size).filter(any),
        st.lists(st.floats(0, 5), min_size=size, max_size=size),
        st.lists(st.floats(0.01, 1), min_size=size, max_size=size),
        st.floats(0.0, 0.95),
    )
)


@given(games)
def test_a_plain_game_over_mixed_risks_is_the_game_with_fixed_weights(
    drawn: tuple[list[int], list[bool], list[float], list[float], float],
) -> None:
    *lists, keep_share = drawn
    rows, included, risks, wishes = (torch.tensor(own) for own in lists)
    shares, r = rows.double() / rows.sum(), risks.double()
    fixed = FixedShares(shares, included, keep_share)
    chosen = wishes.double()[included] / wishes.double()[included].sum()
    weights = fixed.weights(chosen)
    assert float(weights.sum()) == pytest.approx(1.0)
    assert torch.equal(weights[~included], shares[~included])
    assert bool((weights >= keep_share * shares).all())
    assert fixed.chosen(weights).tolist() == pytest.approx(chosen.tolist())
    assert float(weights @ r) == pytest.approx(float(chosen @ fixed.mix(r)))
    # The worst that is allowed: all that is free, but for the floor, on the highest included risk.
    epsilon = 0.5 * fixed.free / int(included.sum())
    allowed = torch.where(included, keep_share * shares + epsilon, shares)
    allowed[included.nonzero()[int(r[included].argmax())]] += 1.0 - allowed.sum()
    worst = highest_mix(fixed.mix(r), fixed.floor(epsilon))
    assert worst == pytest.approx(float(allowed @ r))


def test_where_all_play_nothing_changes() -> None:
    shares = torch.tensor([0.1, 0.9], dtype=torch.float64)
    fixed = FixedShares(shares, torch.tensor([True, True]))
    values = torch.tensor([[0.3, 7.0], [1.1, 0.1]], dtype=torch.float64)
    assert torch.equal(fixed.mix(values), values)
    assert torch.equal(fixed.chosen(shares), shares)
    assert torch.equal(fixed.weights(values[0]), values[0])
    assert fixed.floor(0.07) == 0.07


def test_if_all_play_the_value_is_a_mixture_of_the_worst_and_the_mean_risk() -> None:
    shares = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    risks = torch.tensor([0.9, 0.1, 0.4], dtype=torch.float64)
    fixed = FixedShares(shares, torch.ones(3, dtype=torch.bool), keep_share=0.25)
    mean = 0.2 * 0.9 + 0.5 * 0.1 + 0.3 * 0.4
    assert float(fixed.mix(risks).max()) == pytest.approx(0.75 * 0.9 + 0.25 * mean, rel=1e-14)


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
    assert missing(*programme, floor) <= 1e-9


def test_no_weights_of_nearly_equal_tangents_are_better() -> None:
    """Where everyone keeps nearly the whole share, a bound's tangents come in pairs."""
    for seed in range(500):
        rng = np.random.default_rng(seed)
        points, numbers = rng.integers(1, 5), rng.integers(1, 7)
        apart = 10.0 ** -rng.integers(3, 13)
        # Slopes shrink as points come near the optimum.
        lengths = 10.0 ** -rng.integers(5, size=(points, 1, 1))
        slopes = lengths * rng.normal(size=(points, 1, numbers))
        slopes = (slopes + apart * rng.normal(size=(points, 2, numbers))).reshape(-1, numbers)
        heights = 0.1 * rng.normal(size=(points, 1)) + apart * rng.normal(size=(points, 2))
        products = torch.from_numpy(100.0 * slopes @ slopes.T)
        assert missing(torch.from_numpy(heights.flatten()), products, 0.0) <= 1e-9


def missing(linear: torch.Tensor, quadratic: torch.Tensor, floor: float) -> float:
    """What any weights could gain: f(best) - f(x) <= max_v <grad f(x), v - x> for concave f."""
    start = torch.full((len(linear),), 1.0 / len(linear), dtype=torch.float64)
    weights = maximise_on_simplex(linear, quadratic, start, floor).numpy()
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert (weights >= floor - 1e-12).all()
    slopes = linear.numpy() - quadratic.numpy() @ weights
    best = linprog(-slopes, A_eq=np.ones((1, len(slopes))), b_eq=[1.0], bounds=(floor, None))
    assert best.status == 0
    assert best.fun is not None
    size = max(float(linear.abs().max()), float(quadratic.abs().max()))
    return float(-best.fun - slopes @ weights) / size if size else 0.0
