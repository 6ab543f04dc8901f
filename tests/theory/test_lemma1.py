"""Lemma 1 of Papadaki et al. 2021: when is minimax over sites minimax over groups?

Groups at c = 0, 1 with r_a = (theta - c_a)^2 / 2; site k has the mixture P[:, k] of them, so
its risk is r_k = sum_a P[a, k] r_a. The group value is 1/8 at theta = mu_1 = 1/2. AFL can only
reach mu = P lambda: it agrees exactly if (1/2, 1/2) is a mixture of the columns.

- columns (.9, .1), (.6, .4): lambda* = (0, 1), theta = .4, group risks (.08, .18).
- columns (.9, .1), (.3, .7): lambda* = (1/3, 2/3), P lambda* = (1/2, 1/2): agreement.
- the identity: agreement.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from fedminmax.core.iterates import Iterate
from fedminmax.methods.afl import AFL
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.training.train import train
from tests.problems import Rows, Vector, points, quadratic_federation, to_numpy

CENTRES = np.array([0.0, 1.0])


def sites(table: list[tuple[int, int]]) -> list[Rows]:
    return [points([[[0.0]] * zeros, [[1.0]] * ones]) for zeros, ones in table]


def group_risks(theta: float) -> Vector:
    risks: Vector = 0.5 * (theta - CENTRES) ** 2
    return risks


def minimax_value(mixtures: Vector) -> float:
    """min over theta of the largest of these mixtures of the group risks, by scipy."""
    solved = minimize_scalar(
        lambda theta: float((mixtures @ group_risks(theta)).max()),
        bounds=(0.0, 1.0),
        method="bounded",
        options={"xatol": 1e-10},
    )
    return float(solved.fun)


def lower_bound(mu: Vector) -> float:
    """min over theta of sum_a mu_a r_a = mu_0 mu_1 / 2: weak duality bounds the value below."""
    return float(mu[0] * mu[1] / 2.0)


@pytest.mark.parametrize(
    ("table", "theta", "weights"),
    [
        ([(9, 1), (6, 4)], 0.4, (0.0, 1.0)),
        ([(9, 1), (3, 7)], 0.5, (1 / 3, 2 / 3)),
        ([(10, 0), (0, 10)], 0.5, (0.5, 0.5)),
    ],
)
def test_afl_ends_at_the_saddle_over_sites(
    table: list[tuple[int, int]], theta: float, weights: tuple[float, float]
) -> None:
    """At the end a round contracts: by 1 - eta at a corner, else as in the quadratic games."""
    federation = quadratic_federation([0.3], sites(table))
    last = list(train(federation, AFL(learning_rate=0.5, adversary_rate=0.5), rounds=600))[-1]
    np.testing.assert_allclose(to_numpy(last.parameters(Iterate.LAST)), [theta], atol=1e-10)
    np.testing.assert_allclose(to_numpy(last.weights), weights, atol=1e-10)
    np.testing.assert_allclose(to_numpy(last.risks), group_risks(theta), atol=1e-10)


@pytest.mark.parametrize("table", [[(9, 1), (6, 4)], [(9, 1), (3, 7)], [(10, 0), (0, 10)]])
def test_fedminmax_ends_at_the_saddle_over_groups_in_all_three(
    table: list[tuple[int, int]],
) -> None:
    federation = quadratic_federation([0.3], sites(table))
    method = FedMinMax(learning_rate=0.5, adversary_rate=0.5)
    last = list(train(federation, method, rounds=300))[-1]
    np.testing.assert_allclose(to_numpy(last.parameters(Iterate.LAST)), [0.5], atol=1e-12)
    np.testing.assert_allclose(to_numpy(last.risks), [0.125, 0.125], atol=1e-12)


mixed_tables = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=3)


@settings(max_examples=8)
@given(mixed_tables)
def test_the_value_over_sites_is_at_most_the_value_over_groups(
    table: list[tuple[int, int]],
) -> None:
    """Each method's average model and weights bracket its value, and scipy's value is inside.

    max_k r_k(theta) >= value >= min_theta sum_k lambda_k r_k(theta) for all theta and lambda, so
    the width of the bracket is the error of the run: O(1/T), here below .005 at 400 rounds.
    """
    counts = np.array(table, dtype=np.float64)
    mixtures = counts / counts.sum(axis=1, keepdims=True)
    over_sites, over_groups = minimax_value(mixtures), minimax_value(np.eye(2))
    assert over_groups == pytest.approx(0.125, abs=1e-9)
    assert over_sites <= over_groups + 1e-9

    afl = AFL(learning_rate=0.5, adversary_rate=0.5)
    done = list(train(quadratic_federation([0.3], sites(table)), afl, rounds=400))[-1]
    upper = float((mixtures @ group_risks(float(done.parameters(Iterate.AVERAGE)))).max())
    lower = lower_bound(to_numpy(done.progress.state.average_weights) @ mixtures)
    assert lower - 1e-9 <= over_sites <= upper + 1e-9
    assert upper - lower < 5e-3

    share = mixtures[:, 1]
    if share.min() <= 0.5 <= share.max():
        assert over_sites == pytest.approx(over_groups, abs=1e-9)
    else:
        nearest = share[np.abs(share - 0.5).argmin()]
        assert over_sites == pytest.approx(nearest * (1 - nearest) / 2, abs=1e-9)
        assert over_sites < over_groups
