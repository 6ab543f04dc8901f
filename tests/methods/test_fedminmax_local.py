"""FedMinMax with local epochs: one full batch is Algorithm 1; more steps use fixed weights."""

from dataclasses import replace

import numpy as np
import pytest

from fedminmax.core.iterates import Iterate
from fedminmax.methods.fedminmax import FedMinMax, FedMinMaxLocal
from fedminmax.training.train import train
from tests.oracles import brier_gradient, fedminmax_by_hand, project_by_bisection
from tests.problems import softmax_problem, to_numpy

PROBLEM = softmax_problem([[4, 0, 2], [1, 5, 0], [0, 0, 3]], seed=1)
RATE = 0.3
MINMAX = FedMinMax(RATE, adversary_rate=0.5)


def test_one_full_batch_is_algorithm_1() -> None:
    trace = fedminmax_by_hand(PROBLEM, rounds=40, eta=0.3, eta_mu=0.5)
    local = FedMinMaxLocal(RATE, MINMAX.adversary_rate, epochs=1, batch_size=None)
    both = zip(
        train(PROBLEM.federation(), local, rounds=40),
        train(PROBLEM.federation(), MINMAX, rounds=40),
        strict=True,
    )
    for done, plain in both:
        theta = to_numpy(done.parameters(Iterate.LAST))
        np.testing.assert_allclose(theta, trace.thetas[done.number], atol=1e-12)
        np.testing.assert_allclose(theta, to_numpy(plain.parameters(Iterate.LAST)), atol=1e-12)
        np.testing.assert_allclose(to_numpy(done.weights), trace.weights[done.number], atol=1e-12)


@pytest.mark.parametrize("epochs", [2, 5])
def test_local_steps_descend_the_weighted_loss_and_mu_sees_the_risks_before_them(
    epochs: int,
) -> None:
    rho = np.full(3, 1 / 3)
    theta, mu = PROBLEM.start, rho
    method = FedMinMaxLocal(RATE, MINMAX.adversary_rate, epochs=epochs, batch_size=None)
    for done in train(PROBLEM.federation(), method, rounds=10):
        mean = np.zeros_like(theta)
        for x, y, group in PROBLEM.numpy_rows():
            own = theta
            for _ in range(epochs):
                own = own - 0.3 * brier_gradient(PROBLEM, own, x, y, (mu / rho)[group] / len(y))
            mean += len(y) / 15 * own
        at_theta = replace(PROBLEM, start=theta)
        risks = fedminmax_by_hand(at_theta, rounds=1, eta=0.3, eta_mu=0.5).risks[0]
        theta, mu = mean, project_by_bisection(mu + 0.5 * risks)
        np.testing.assert_allclose(to_numpy(done.parameters(Iterate.LAST)), theta, atol=1e-12)
        np.testing.assert_allclose(to_numpy(done.weights), mu, atol=1e-12)
