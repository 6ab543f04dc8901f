"""DRFA (Deng et al. 2020) against numpy loops, with the lots that the server drew."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedminmax.core.errors import DivergedError
from fedminmax.core.iterates import Iterate
from fedminmax.core.messages import RoundKey
from fedminmax.methods.afl import AFL, AFLStart
from fedminmax.methods.drfa import DRFA
from fedminmax.methods.fedavg import FedAvg
from fedminmax.training.progress import initial_progress
from fedminmax.training.train import train
from tests.complaints import complaint_of
from tests.methods.look_ahead_problems import (
    all_draws,
    assert_frequencies,
    models_on_the_way,
    plain,
)
from tests.oracles import project_by_bisection
from tests.problems import Vector, points, quadratic_federation, softmax_problem, to_numpy

PROBLEM = softmax_problem([[4, 0, 2], [1, 5, 0], [0, 0, 3]], seed=1)
ROWS = PROBLEM.numpy_rows()
BY_ROWS = np.array([6.0, 6.0, 3.0]) / 15.0
LAMBDA = np.array([0.15, 0.25, 0.6])
EVEN = np.full(3, 1 / 3)


def risks_at(theta: Vector) -> Vector:
    return np.array([PROBLEM.brier_losses(theta, x, y).mean() for x, y, _ in ROWS])


@pytest.mark.parametrize("gamma", [0.0, 0.1, 2.0])
def test_one_full_step_is_afl_whose_adversary_sees_the_new_model(gamma: float) -> None:
    """The second player answers the first: Gauss-Seidel, where AFL is Jacobi."""
    method = DRFA(0.3, gamma, steps=1, batch_size=None)
    theta, weights = PROBLEM.start, BY_ROWS
    for done in train(PROBLEM.federation(), method, rounds=40):
        own = [
            models_on_the_way(PROBLEM, theta, x, y, plain(y), eta=0.3, steps=1)[1]
            for x, y, _ in ROWS
        ]
        theta = weights @ np.stack(own)
        weights = project_by_bisection(weights + gamma * risks_at(theta))
        np.testing.assert_allclose(to_numpy(done.parameters(Iterate.LAST)), theta, atol=1e-10)
        np.testing.assert_allclose(to_numpy(done.weights), weights, atol=1e-10)
    jacobi = list(train(PROBLEM.federation(), AFL(0.3, gamma), rounds=40))[-1]
    same = np.allclose(to_numpy(jacobi.weights), weights, atol=1e-6)
    assert same == (gamma == 0.0)


@pytest.mark.parametrize("sites_drawn", [None, 2])
def test_the_paper_loop_with_the_lots_that_were_drawn(sites_drawn: int | None) -> None:
    eta, gamma, tau = 0.3, 0.2, 3
    method = DRFA(
        eta, gamma, steps=tau, batch_size=None, sites_drawn=sites_drawn, start=AFLStart.UNIFORM
    )
    federation = PROBLEM.federation()
    state = initial_progress(federation, method).state
    theta, weights, seen = PROBLEM.start, EVEN, set()
    for done in train(federation, method, rounds=12, seed=4):
        key = RoundKey(4, done.number)
        *counts, snapshot_step = method.order(state, key).weights.tolist()
        open_question = method.ask_again(
            replace(state, snapshot=state.parameters.unsqueeze(0)), key
        )
        assert open_question is not None
        told = to_numpy(open_question.weights)
        if sites_drawn is None:
            np.testing.assert_allclose(counts, weights, atol=1e-10)
            assert told.tolist() == [1.0, 1.0, 1.0]
        own = [
            models_on_the_way(PROBLEM, theta, x, y, plain(y), eta=eta, steps=tau)
            for x, y, _ in ROWS
        ]
        shares = np.array(counts) / sum(counts)
        theta = shares @ np.stack([models[tau] for models in own])
        snapshot = shares @ np.stack([models[int(snapshot_step)] for models in own])
        v = 3 / told.sum() * told * risks_at(snapshot)
        weights = project_by_bisection(weights + tau * gamma * v)
        np.testing.assert_allclose(to_numpy(done.parameters(Iterate.LAST)), theta, atol=1e-10)
        np.testing.assert_allclose(to_numpy(done.weights), weights, atol=1e-10)
        assert done.total.gradient_evaluations == tau * sum(
            len(y) for (_, y, _), count in zip(ROWS, counts, strict=True) if count > 0
        )
        state = done.progress.state
        seen.add(snapshot_step)
    assert seen == {1.0, 2.0, 3.0}


@pytest.mark.parametrize("draws", [1, 2])
def test_v_is_unbiased_for_the_risks_at_the_snapshot(draws: int) -> None:
    """All lots with their chances; inside the simplex a step is rate * (v - mean of v)."""
    federation, rate = PROBLEM.federation(), 1e-3
    method = DRFA(0.3, rate / 2, steps=2, batch_size=None, sites_drawn=draws)
    snapshot = torch.from_numpy(PROBLEM.start + 0.5)
    state = replace(
        initial_progress(federation, method).state,
        weights=torch.from_numpy(LAMBDA),
        snapshot=snapshot.unsqueeze(0),
    )
    question = method.ask_again(state, RoundKey(0, 1))
    assert question is not None
    ascent = np.zeros(3)
    for chance, counts in all_draws(EVEN, draws):
        order = replace(question, weights=torch.from_numpy(counts))
        moved = method.update_again(state, federation.ask(method, order, [0, 1, 2]).total)
        ascent += chance * (to_numpy(moved.weights) - LAMBDA) / rate
    risks = risks_at(to_numpy(snapshot))
    np.testing.assert_allclose(ascent, risks - risks.mean(), atol=1e-10)


def test_a_drawn_site_tells_the_loss_of_a_uniformly_drawn_batch() -> None:
    targets, draws = [1.0, 2.0, 4.0], 300
    federation = quadratic_federation([0.0], [points([[[y] for y in targets]])])
    method = DRFA(batch_size=1)
    state = initial_progress(federation, method).state
    asked = replace(state, snapshot=state.parameters.unsqueeze(0))
    told: Counter[float] = Counter()
    for number in range(draws):
        question = method.ask_again(asked, RoundKey(0, number))
        assert question is not None
        reply = federation.ask(method, question, [0]).total
        told[float(reply.site_loss[0])] += 1
    assert set(told) == {0.5, 2.0, 8.0}
    spread = (draws * 2 / 9) ** 0.5
    assert all(abs(count - draws / 3) < 5 * spread for count in told.values())


def test_lots_fall_by_lambda_then_evenly_and_every_step_is_as_likely() -> None:
    federation, rounds = PROBLEM.federation(), 600
    method = DRFA(steps=4, sites_drawn=2)
    state = replace(
        initial_progress(federation, method).state,
        weights=torch.from_numpy(LAMBDA),
        snapshot=torch.from_numpy(PROBLEM.start).unsqueeze(0),
    )
    orders = [method.order(state, RoundKey(0, number)).weights for number in range(rounds)]
    assert_frequencies([own[:-1] for own in orders], LAMBDA, 2)
    questions = [method.ask_again(state, RoundKey(0, number)) for number in range(rounds)]
    told = [question.weights for question in questions if question is not None]
    assert_frequencies(told, EVEN, 2)
    steps = [torch.eye(4, dtype=torch.float64)[int(own[-1]) - 1] for own in orders]
    assert_frequencies(steps, np.full(4, 1 / 4), 1)
    # Who tells does not depend on who trains: the product's mean is the product of the means.
    both = np.mean([float(a[2] * b[2]) for a, b in zip(orders, told, strict=True)])
    assert both == pytest.approx(2 * LAMBDA[2] * 2 / 3, abs=0.2)


def test_without_adversary_and_lots_it_is_fedavg() -> None:
    """Six rows in batches of two: three steps are one epoch."""
    problem = softmax_problem([[4, 0, 2], [1, 5, 0], [0, 3, 3]], seed=1)
    pairs = [
        (DRFA(0.3, 0.0, steps=3, batch_size=2), FedAvg(0.3, epochs=1, batch_size=2)),
        (DRFA(0.3, 0.0, steps=3, batch_size=None), FedAvg(0.3, epochs=3, batch_size=None)),
    ]
    for one, other in pairs:
        drfa = list(train(problem.federation(), one, rounds=5))[-1]
        fedavg = list(train(problem.federation(), other, rounds=5))[-1]
        torch.testing.assert_close(
            drfa.parameters(Iterate.LAST), fedavg.parameters(Iterate.LAST), rtol=0, atol=1e-12
        )
        assert drfa.progress.gradient_evaluations == fedavg.progress.gradient_evaluations


def test_lots_and_batches_follow_the_seed() -> None:
    method = DRFA(0.3, 0.2, steps=3, batch_size=2, sites_drawn=2)

    def run(seed: int) -> torch.Tensor:
        rounds = list(train(PROBLEM.federation(), method, rounds=6, seed=seed))
        return torch.cat([torch.cat([done.parameters(), done.weights]) for done in rounds])

    assert torch.equal(run(1), run(1))
    assert not torch.equal(run(1), run(2))


def test_the_averaged_lambda_is_kept() -> None:
    rounds = list(train(PROBLEM.federation(), DRFA(0.3, 0.2, steps=2), rounds=10))
    mean = np.mean([to_numpy(done.weights) for done in rounds], axis=0)
    kept = to_numpy(rounds[-1].progress.state.average_weights)
    np.testing.assert_allclose(kept, mean, atol=1e-14)


def test_a_loss_that_overflows_at_the_snapshot_is_divergence() -> None:
    federation = quadratic_federation([1.0], [points([[[2.0]], [[3.0]]])])
    with pytest.raises(DivergedError, match="the loss of '0' is not finite"):
        next(train(federation, DRFA(1e200, steps=1), rounds=1))


def test_what_cannot_be_counted_is_refused() -> None:
    for name, action in (
        ("steps", lambda: DRFA(steps=0)),
        ("batch_size", lambda: DRFA(batch_size=0)),
        ("sites_drawn", lambda: DRFA(sites_drawn=0)),
    ):
        assert f"{name} = 0; give a whole number of at least 1" in complaint_of(action)
    assert "adversary_rate = -1" in complaint_of(lambda: DRFA(adversary_rate=-1.0))
    assert "learning_rate = 0" in complaint_of(lambda: DRFA(learning_rate=0.0))
