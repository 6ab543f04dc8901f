"""Lemma 2 of Papadaki et al. 2021: Algorithm 1 on any partition is Algorithm 2 on the pool.

Sum_k (n_k/n) theta_k = theta - (eta/n) sum_i (mu_a/rho_a) grad loss_i = theta - eta sum_a mu_a
grad r_a, since rho_a n = n_a: the sites drop out. So merging, splitting and permuting sites
changes nothing either.
"""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedminmax.core.iterates import Iterate
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.training.train import train
from tests.oracles import Trace, centralized_by_hand
from tests.problems import Problem, Rows, pooled, softmax_problem, softmax_problems, to_numpy

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
