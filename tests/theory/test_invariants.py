"""What holds in every run of FedMinMax, and the cases where it is plain gradient descent.

If all sites have the same rows, no method over sites can tell them apart: each is FedAvg.

This is ESG in its purest form. Weights stay uniform, so AFL, DRFA (one step), TERM and FairFed take
FedAvg's very step; q-FedAvg and FedMGDA+ take a step of another length in the same direction.

Lemma 1's last claim needs uniqueness: a documentation test.

theta in [0, 1], r_0 = theta, r_1 = 1 - theta, one site with both groups alike. Its risk is
1/2 for every theta, so every theta is minimax over sites, and AFL stays where it starts. Yet
theta = 1 leaves group 0 with risk 1, twice the group minimax value 1/2.

FedMinMax: the regret of both players with D_theta = 1 on [0, 1], gradient at most
1, D_mu^2 <= 1/2 from the middle of the simplex and risks within [-.5, 1.5] on this run bounds
the gap of the averages by 1/(2 eta T) + eta/2 + 1/(4 eta T) + 2.25 eta = .0651 for eta = .01 and
T = 2000; the minimum of mu_0 theta + mu_1 (1 - theta) over [0, 1] is at most 1/2.
"""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from fedminmax.core.iterates import Iterate
from fedminmax.core.messages import RoundKey
from fedminmax.methods.afl import AFL
from fedminmax.methods.drfa import DRFA
from fedminmax.methods.fairfed import FairFed
from fedminmax.methods.fedavg import FedAvg
from fedminmax.methods.fedmgda import FedMGDA
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.methods.method import AnyMethod
from fedminmax.methods.qfedavg import QFedAvg
from fedminmax.methods.term import TERM
from fedminmax.training.progress import initial_progress
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import train
from tests.oracles import brier_gradient
from tests.problems import (
    Point,
    Problem,
    Vector,
    points,
    softmax_problem,
    softmax_problems,
    to_numpy,
)


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


PROBLEM = softmax_problem([[5, 9, 3]], seed=6, classes=2)
SITES = [PROBLEM.sites[0]] * 4
FEDAVG = FedAvg(0.3, 1, batch_size=None)


def iterates(method: AnyMethod[Any], rounds: int) -> torch.Tensor:
    federation = PROBLEM.federation(sites=SITES)
    return torch.stack(
        [done.parameters(Iterate.LAST) for done in train(federation, method, rounds=rounds)]
    )


@pytest.mark.parametrize(
    "method",
    [
        AFL(0.3, 0.5),
        DRFA(0.3, 0.5, steps=1, batch_size=None),
        TERM(5.0, 0.0, learning_rate=0.3, epochs=1, batch_size=None),
        FairFed(learning_rate=0.3, epochs=1, batch_size=None),
        QFedAvg(0.0, learning_rate=0.3, epochs=1, batch_size=None),
    ],
    ids=lambda method: method.name,
)
def test_the_trajectory_is_fedavgs(method: AnyMethod[Any]) -> None:
    torch.testing.assert_close(iterates(method, 25), iterates(FEDAVG, 25), rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "method",
    [
        QFedAvg(5.0, learning_rate=0.3, epochs=1, batch_size=None),
        FedMGDA(1.0, learning_rate=0.3, epochs=1, batch_size=None),
    ],
    ids=lambda method: method.name,
)
def test_the_direction_is_fedavgs(method: AnyMethod[Any]) -> None:
    start = torch.from_numpy(PROBLEM.start)
    step = iterates(method, 1)[0] - start
    plain = iterates(FEDAVG, 1)[0] - start
    cosine = torch.dot(step, plain) / (step.norm() * plain.norm())
    assert float(cosine) == pytest.approx(1.0, abs=1e-12)


def test_a_method_over_groups_still_differs() -> None:
    difference = iterates(FedMinMax(0.3, 0.5), 25) - iterates(FEDAVG, 25)
    assert float(difference.norm()) > 1e-2


def linear_risk(outputs: Tensor, targets: Tensor) -> Tensor:
    """theta where the target is 0, and 1 - theta where it is 1."""
    return torch.where(targets[:, 0] == 0.0, outputs[:, 0], 1.0 - outputs[:, 0])


def federation() -> Simulation:
    return Simulation(Point([1.0]), linear_risk, [points([[[0.0]], [[1.0]]])])


def test_every_model_is_minimax_over_the_site_so_afl_stays_at_the_worst_one() -> None:
    done = list(train(federation(), AFL(), rounds=50))[-1]
    assert done.parameters(Iterate.LAST).tolist() == [1.0]
    assert done.total.site_risks.tolist() == [0.5]
    assert done.risks.tolist() == [1.0, 0.0]


def test_fedminmax_finds_the_minimax_model_over_groups() -> None:
    method = FedMinMax(learning_rate=0.01, adversary_rate=0.01)
    rounds = list(train(federation(), method, rounds=2000))
    assert all(-0.5 <= float(done.risks.min()) <= 1.5 for done in rounds)
    theta = float(rounds[-1].parameters(Iterate.AVERAGE))
    assert max(theta, 1.0 - theta) <= 0.5 + 0.0651
