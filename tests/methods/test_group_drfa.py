"""Group DRFA: DRFA's rounds with FedMinMax's adversary, against numpy loops."""

from typing import Any

import numpy as np
import pytest
import torch

from fedminmax.core.errors import DivergedError
from fedminmax.core.iterates import Iterate
from fedminmax.core.messages import RoundKey
from fedminmax.methods.drfa import DRFA, GroupDRFA
from fedminmax.methods.fedminmax import FedMinMax, FedMinMaxLocal
from fedminmax.methods.method import AnyMethod
from fedminmax.training.progress import initial_progress
from fedminmax.training.train import Round, train
from tests.complaints import complaint_of
from tests.methods.look_ahead_problems import models_on_the_way
from tests.oracles import project_by_bisection
from tests.problems import Problem, Vector, points, quadratic_federation, softmax_problem, to_numpy

PROBLEM = softmax_problem([[4, 0, 2], [1, 5, 0], [0, 0, 3]], seed=1)
ROWS = PROBLEM.numpy_rows()
RHO = np.array([5.0, 5.0, 5.0]) / 15.0
UNEVEN = softmax_problem([[4, 0, 2], [1, 7, 0], [0, 1, 1]], seed=3)


def run(problem: Problem, method: AnyMethod[Any], rounds: int, seed: int = 0) -> list[Round[Any]]:
    return list(train(problem.federation(), method, rounds=rounds, seed=seed))


def group_risks(theta: Vector) -> Vector:
    losses = np.concatenate([PROBLEM.brier_losses(theta, x, y) for x, y, _ in ROWS])
    group = np.concatenate([own for _, _, own in ROWS])
    return np.array([losses[group == a].mean() for a in range(3)])


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
@pytest.mark.parametrize("tau", [1, 3])
def test_the_loop_by_hand(tau: int, epsilon: float) -> None:
    """With one step, t' = 1: FedMinMax whose adversary sees the new model (Gauss-Seidel)."""
    eta, gamma = 0.3, 0.3
    method = GroupDRFA(eta, gamma, min_weight=epsilon, steps=tau, batch_size=None)
    federation = PROBLEM.federation()
    state = initial_progress(federation, method).state
    theta, mu, seen = PROBLEM.start, RHO, set()
    for done in train(federation, method, rounds=25):
        snapshot_step = int(method.order(state, RoundKey(0, done.number)).weights[-1])
        own = [
            models_on_the_way(PROBLEM, theta, x, y, (mu / RHO)[group], eta=eta, steps=tau)
            for x, y, group in ROWS
        ]
        shares = np.array([len(y) for _, y, _ in ROWS]) / 15.0
        theta = shares @ np.stack([models[tau] for models in own])
        snapshot = shares @ np.stack([models[snapshot_step] for models in own])
        mu = project_by_bisection(mu + tau * gamma * group_risks(snapshot), floor=epsilon)
        np.testing.assert_allclose(to_numpy(done.parameters(Iterate.LAST)), theta, atol=1e-10)
        np.testing.assert_allclose(to_numpy(done.weights), mu, atol=1e-10)
        state = done.progress.state
        seen.add(snapshot_step)
    assert seen == set(range(1, tau + 1))
    jacobi = run(PROBLEM, FedMinMax(eta, tau * gamma, min_weight=epsilon), rounds=25)[-1]
    assert not np.allclose(to_numpy(jacobi.parameters(Iterate.LAST)), theta, atol=1e-6)


def test_one_step_with_one_site_per_group_is_drfa() -> None:
    """Then mu is lambda, and n_k / n times w_k is lambda_k, whatever the sites' sizes."""
    problem = softmax_problem([[4, 0, 0], [0, 7, 0], [0, 0, 2]], seed=2)
    group = run(problem, GroupDRFA(0.3, 0.4, steps=1, batch_size=None), rounds=30)
    site = run(problem, DRFA(0.3, 0.4, steps=1, batch_size=None), rounds=30)
    for one, other in zip(group, site, strict=True):
        torch.testing.assert_close(
            one.parameters(Iterate.LAST), other.parameters(Iterate.LAST), rtol=0, atol=1e-11
        )
        torch.testing.assert_close(one.weights, other.weights, rtol=0, atol=1e-11)


def test_a_first_round_of_many_steps_with_one_site_per_group_is_drfa() -> None:
    """At mu = rho all rows weigh 1, so the local steps are DRFA's too, and t' is the same lot."""
    problem = softmax_problem([[4, 0, 0], [0, 4, 0], [0, 0, 4]], seed=2)
    for seed in range(4):
        one = run(problem, GroupDRFA(0.3, 0.1, steps=4, batch_size=None), 1, seed)[0]
        other = run(problem, DRFA(0.3, 0.1, steps=4, batch_size=None), 1, seed)[0]
        torch.testing.assert_close(one.parameters(), other.parameters(), rtol=0, atol=1e-12)
        torch.testing.assert_close(one.weights, other.weights, rtol=0, atol=1e-12)


def test_without_ascent_it_is_fedminmax_with_local_epochs() -> None:
    """No ascent from a floor that moved mu away from rho: the weights matter, and stay."""
    one = run(UNEVEN, GroupDRFA(0.3, 0.0, min_weight=0.25, steps=3, batch_size=None), 5)[-1]
    other = run(UNEVEN, FedMinMaxLocal(0.3, 0.0, min_weight=0.25, epochs=3, batch_size=None), 5)[-1]
    assert not np.allclose(to_numpy(one.weights), [5 / 16, 8 / 16, 3 / 16])
    torch.testing.assert_close(
        one.parameters(Iterate.LAST), other.parameters(Iterate.LAST), rtol=0, atol=1e-12
    )
    assert one.progress.gradient_evaluations == 5 * 3 * 16


def test_a_loss_that_overflows_at_the_snapshot_is_divergence() -> None:
    federation = quadratic_federation([1.0], [points([[[2.0]], [[3.0]]])])
    with pytest.raises(DivergedError, match="the loss of '0' is not finite"):
        next(train(federation, GroupDRFA(1e200, steps=1), rounds=1))


def test_what_makes_no_sense_is_refused() -> None:
    assert "steps = 0; give a whole number of at least 1" in complaint_of(
        lambda: GroupDRFA(steps=0)
    )
    assert "min_weight = -1" in complaint_of(lambda: GroupDRFA(min_weight=-1.0))
    too_much = GroupDRFA(min_weight=0.5)
    assert "group DRFA: min_weight = 0.5 with 3 groups" in complaint_of(
        lambda: initial_progress(PROBLEM.federation(), too_much)
    )
