"""AFL (Mohri et al. 2019, non-stochastic) against a numpy loop over the sites."""

import numpy as np
import pytest

from fedminmax.core.iterates import Iterate
from fedminmax.methods.afl import AFL, AFLStart
from fedminmax.training.progress import initial_progress
from fedminmax.training.train import train
from tests.oracles import afl_by_hand
from tests.problems import Vector, softmax_problem, to_numpy

ROUNDS = 60
PROBLEM = softmax_problem([[4, 0, 2], [1, 5, 0], [0, 0, 3]], seed=1)
BY_ROWS = np.array([6.0, 6.0, 3.0]) / 15.0
ALIKE = np.full(3, 1 / 3)


@pytest.mark.parametrize(("start", "expected"), [("rows", BY_ROWS), ("uniform", ALIKE)])
@pytest.mark.parametrize("rate", [0.0, 0.1, 2.0])
def test_trajectory(start: str, expected: Vector, rate: float) -> None:
    method = AFL(learning_rate=0.3, adversary_rate=rate, start=AFLStart(start))
    trace = afl_by_hand(PROBLEM, rounds=ROUNDS, eta=0.3, eta_lambda=rate, start=expected)
    rounds = list(train(PROBLEM.federation(), method, rounds=ROUNDS))
    assert len(rounds) == ROUNDS
    for done in rounds:
        theta = to_numpy(done.parameters(Iterate.LAST))
        np.testing.assert_allclose(theta, trace.thetas[done.number], atol=1e-12)
        np.testing.assert_allclose(to_numpy(done.weights), trace.weights[done.number], atol=1e-12)
        risks = to_numpy(done.total.site_risks)
        np.testing.assert_allclose(risks, trace.risks[done.number - 1], atol=1e-12)
    np.testing.assert_allclose(
        to_numpy(rounds[-1].parameters(Iterate.AVERAGE)), trace.average, atol=1e-12
    )
    np.testing.assert_allclose(
        to_numpy(rounds[-1].progress.state.average_weights),
        np.mean(trace.weights[1:], axis=0),
        atol=1e-12,
    )


def test_scaling_divides_the_rate_by_sites_per_group() -> None:
    federation = softmax_problem([[2, 1], [2, 2], [1, 1], [2, 3], [1, 0], [0, 1]]).federation()
    method = AFL(adversary_rate=0.6, scale_adversary_rate=True)
    assert initial_progress(federation, method).state.rate == pytest.approx(0.2, abs=1e-16)
