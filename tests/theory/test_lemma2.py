"""How AFL's adversary compares with FedMinMax's.

One site per group and lambda^0 = rho: the same numbers. c sites per group with equal shares:
a site's weight moves by eta (r_k - mean), so the group's moves c times as far. With 20 + 20
sites and risks (.4825, .2125): lambda = .025 + .1 * .135 = .0385, times 20 is .77, whereas
mu_0 = .5 + .1 * .135 = .5135; eta / 20 matches.

Lemma 2 of Papadaki et al. 2021: Algorithm 1 on any partition is Algorithm 2 on the pool.

Sum_k (n_k/n) theta_k = theta - (eta/n) sum_i (mu_a/rho_a) grad loss_i = theta - eta sum_a mu_a
grad r_a, since rho_a n = n_a: the sites drop out. So merging, splitting and permuting sites
changes nothing either.
"""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedminmax.core.iterates import Iterate
from fedminmax.methods.afl import AFL, AFLStart
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.methods.method import AnyMethod
from fedminmax.training.train import train
from tests.oracles import Trace, centralized_by_hand, fedminmax_by_hand
from tests.problems import (
    Problem,
    Rows,
    points,
    pooled,
    quadratic_federation,
    softmax_problem,
    softmax_problems,
    to_numpy,
)


def test_one_site_per_group_has_the_trajectory_of_fedminmax() -> None:
    problem = softmax_problem([[4, 0, 0], [0, 7, 0], [0, 0, 2]], seed=6)
    trace = fedminmax_by_hand(problem, rounds=50, eta=0.3, eta_mu=0.4)
    method = AFL(learning_rate=0.3, adversary_rate=0.4, start=AFLStart.ROWS)
    rounds = list(train(problem.federation(), method, rounds=50))
    for done in rounds:
        theta = to_numpy(done.parameters(Iterate.LAST))
        np.testing.assert_allclose(theta, trace.thetas[done.number], atol=1e-12)
        np.testing.assert_allclose(to_numpy(done.weights), trace.weights[done.number], atol=1e-12)
    np.testing.assert_allclose(
        to_numpy(rounds[-1].parameters(Iterate.AVERAGE)), trace.average, atol=1e-12
    )


@pytest.mark.parametrize("start", list(AFLStart))
def test_identical_sites_keep_their_weights(start: AFLStart) -> None:
    problem = softmax_problem([[4, 2]], seed=6)
    federation = problem.federation(sites=problem.sites * 5)
    for done in train(federation, AFL(adversary_rate=2.0, start=start), rounds=30):
        np.testing.assert_allclose(to_numpy(done.weights), np.full(5, 0.2), atol=1e-14)


def twenty_each() -> list[Rows]:
    """At theta = 0 targets +-s have risk s^2 / 2 and no gradient, so theta stays."""
    high, low = math.sqrt(2 * 0.4825), math.sqrt(2 * 0.2125)
    one, other = points([[[-high], [high]], []]), points([[], [[-low], [low]]])
    return [one] * 20 + [other] * 20


def group_mass_after_one_round(method: AnyMethod[Any]) -> float:
    done = next(train(quadratic_federation([0.0], twenty_each()), method, rounds=1))
    assert done.risks.tolist() == pytest.approx([0.4825, 0.2125], abs=1e-15)
    weights = done.weights
    return float(weights[: len(weights) // 2].sum())


def test_twenty_sites_per_group_move_the_group_twenty_times_as_far() -> None:
    assert group_mass_after_one_round(FedMinMax(0.1)) == pytest.approx(0.5135, abs=1e-14)
    assert group_mass_after_one_round(AFL()) == pytest.approx(0.77, abs=1e-14)


def test_the_scaled_rate_matches_fedminmax() -> None:
    scaled = AFL(scale_adversary_rate=True)
    assert group_mass_after_one_round(scaled) == pytest.approx(0.5135, abs=1e-14)


def test_the_scaled_rate_matches_for_many_rounds_if_sites_of_a_group_are_alike() -> None:
    """With identical data in a group its sites stay alike, and AFL is FedMinMax throughout."""
    problem = softmax_problem([[6, 0], [0, 6]], seed=8)
    trace = fedminmax_by_hand(problem, rounds=40, eta=0.3, eta_mu=0.4)
    method = AFL(learning_rate=0.3, adversary_rate=0.4, scale_adversary_rate=True)
    federation = problem.federation(sites=[problem.sites[0]] * 4 + [problem.sites[1]] * 4)
    for done in train(federation, method, rounds=40):
        theta = to_numpy(done.parameters(Iterate.LAST))
        np.testing.assert_allclose(theta, trace.thetas[done.number], atol=1e-12)
        by_group = done.weights.view(2, 4).sum(dim=1)
        np.testing.assert_allclose(to_numpy(by_group), trace.weights[done.number], atol=1e-12)


def test_no_adversary_is_risk_minimisation() -> None:
    """sum_k (n_k/n) grad r_k is the gradient of the mean over all rows."""
    problem = softmax_problem([[4, 1], [0, 7], [2, 0]], seed=6)
    trace = fedminmax_by_hand(problem, rounds=30, eta=0.3, eta_mu=0.0)
    done = list(train(problem.federation(), AFL(0.3, 0.0), rounds=30))[-1]
    torch.testing.assert_close(
        done.parameters(Iterate.LAST), torch.from_numpy(trace.thetas[-1]), rtol=0, atol=1e-12
    )


ROUNDS = 40
METHOD = FedMinMax(learning_rate=0.3, adversary_rate=0.5)


def assert_centralized(problem: Problem, sites: list[Rows], trace: Trace) -> None:
    rounds = list(train(problem.federation(sites=sites), METHOD, rounds=ROUNDS))
    assert len(rounds) == ROUNDS
    for done in rounds:
        at = done.number
        theta = to_numpy(done.parameters(Iterate.LAST))
        np.testing.assert_allclose(theta, trace.thetas[at], rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(
            to_numpy(done.weights), trace.weights[at], rtol=1e-10, atol=1e-12
        )
        np.testing.assert_allclose(to_numpy(done.risks), trace.risks[at - 1], rtol=1e-10)


@settings(max_examples=12)
@given(softmax_problems())
def test_any_table_with_empty_cells(problem: Problem) -> None:
    trace = centralized_by_hand(problem, rounds=ROUNDS, eta=0.3, eta_mu=0.5)
    assert_centralized(problem, problem.sites, trace)
    assert_centralized(problem, [pooled(problem.sites)], trace)


WHOLE = softmax_problem([[5, 4, 3]], seed=9)
WHOLE_TRACE = centralized_by_hand(WHOLE, rounds=ROUNDS, eta=0.3, eta_mu=0.5)


@settings(max_examples=15)
@given(st.lists(st.integers(0, 5), min_size=12, max_size=12))
def test_any_assignment_of_the_rows_to_sites(owner: list[int]) -> None:
    """Twelve rows to at most six sites in every way: merged, split and renumbered."""
    x, y, group = WHOLE.sites[0]
    owners = torch.tensor(owner)
    sites = [
        (x[owners == number], y[owners == number], group[owners == number])
        for number in sorted(set(owner))
    ]
    assert_centralized(WHOLE, sites, WHOLE_TRACE)
