"""What holds in every run of FedMinMax, and the cases where it is plain gradient descent."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from fedminmax.core.iterates import Iterate
from fedminmax.core.messages import RoundKey
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.training.progress import initial_progress
from fedminmax.training.train import train
from tests.oracles import brier_gradient
from tests.problems import Problem, Vector, softmax_problem, softmax_problems, to_numpy


def gradient_descent(problem: Problem, rounds: int, eta: float) -> list[Vector]:
    """Plain full-batch descent of the mean loss over all rows."""
    rows = problem.numpy_rows()
    x, y = np.concatenate([r[0] for r in rows]), np.concatenate([r[1] for r in rows])
    thetas = [problem.start]
    for _ in range(rounds):
        step = brier_gradient(problem, thetas[-1], x, y, np.full(len(y), 1.0 / len(y)))
        thetas.append(thetas[-1] - eta * step)
    return thetas


def test_without_adversary_it_is_gradient_descent_and_mu_stays() -> None:
    problem = softmax_problem([[4, 0, 2], [1, 5, 0], [0, 1, 4]], seed=3)
    federation, method = problem.federation(), FedMinMax(learning_rate=0.4, adversary_rate=0.0)
    shares = [5 / 17, 6 / 17, 6 / 17]
    thetas = gradient_descent(problem, 50, 0.4)
    for done in train(federation, method, rounds=50):
        theta = to_numpy(done.parameters(Iterate.LAST))
        np.testing.assert_allclose(theta, thetas[done.number], atol=1e-12)
        np.testing.assert_allclose(to_numpy(done.weights), shares, atol=1e-15)


@pytest.mark.parametrize("rate", [0.1, 10.0])
def test_one_group_is_gradient_descent_whatever_the_adversary(rate: float) -> None:
    problem = softmax_problem([[4], [1], [7]], seed=3)
    method = FedMinMax(learning_rate=0.4, adversary_rate=rate)
    thetas = gradient_descent(problem, 50, 0.4)
    for done in train(problem.federation(), method, rounds=50):
        theta = to_numpy(done.parameters(Iterate.LAST))
        np.testing.assert_allclose(theta, thetas[done.number], atol=1e-12)
        assert done.weights.tolist() == [1.0]


@settings(max_examples=15)
@given(softmax_problems())
def test_importance_weights_average_to_one_and_mu_is_on_the_simplex(problem: Problem) -> None:
    """sum_a rho_a w_a = sum_a mu_a = 1; rho is counted here from the rows."""
    group = torch.cat([own for _, _, own in problem.sites])
    rho = torch.bincount(group).double() / len(group)
    federation, method = problem.federation(), FedMinMax(learning_rate=0.3, adversary_rate=1.0)
    states = [initial_progress(federation, method).state]
    states += [done.progress.state for done in train(federation, method, rounds=20)]
    for number, state in enumerate(states):
        weights = method.order(state, RoundKey(0, number)).weights
        assert abs(float(rho @ weights) - 1.0) < 1e-13
        assert float(weights.min()) >= 0.0
        torch.testing.assert_close(weights * rho, state.weights, rtol=0, atol=1e-15)
