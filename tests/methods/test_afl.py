"""AFL (Mohri et al. 2019, non-stochastic) against a numpy loop over the sites.

Stochastic-AFL (Mohri et al. 2019): unbiased in both players, AFL when nothing is drawn.
"""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedminmax.core.iterates import Iterate
from fedminmax.core.messages import RoundKey, zero_sums
from fedminmax.methods.afl import AFL, AFLStart, GradientEstimator, StochasticAFL
from fedminmax.training.progress import initial_progress
from fedminmax.training.train import train
from tests.complaints import complaint_of
from tests.methods.look_ahead_problems import all_draws, assert_frequencies
from tests.oracles import afl_by_hand, brier_gradient
from tests.problems import Vector, points, quadratic_federation, softmax_problem, to_numpy

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


STOCHASTIC_PROBLEM = softmax_problem([[4, 0, 2], [1, 5, 0], [0, 0, 3]], seed=1)
LAMBDA = np.array([0.15, 0.25, 0.6])
BOTH = pytest.mark.parametrize("estimator", list(GradientEstimator))


@BOTH
@pytest.mark.parametrize("draws", [1, 2])
def test_both_gradients_are_unbiased_over_the_lots(
    estimator: GradientEstimator, draws: int
) -> None:
    """All lots with their chances, each with all rows of who was drawn.

    Inside the simplex a projected step is rate * (v - mean of v).
    """
    rows = STOCHASTIC_PROBLEM.numpy_rows()
    gradient = np.sum(
        [
            weight
            * brier_gradient(
                STOCHASTIC_PROBLEM, STOCHASTIC_PROBLEM.start, x, y, np.full(len(y), 1 / len(y))
            )
            for weight, (x, y, _) in zip(LAMBDA, rows, strict=True)
        ],
        axis=0,
    )
    risks = np.array(
        [STOCHASTIC_PROBLEM.brier_losses(STOCHASTIC_PROBLEM.start, x, y).mean() for x, y, _ in rows]
    )
    federation = STOCHASTIC_PROBLEM.federation()
    method = StochasticAFL(0.1, 1e-3, estimator=estimator, draws=draws, batch_size=None)
    state = replace(initial_progress(federation, method).state, weights=torch.from_numpy(LAMBDA))
    step, ascent = np.zeros_like(STOCHASTIC_PROBLEM.start), np.zeros(3)
    order = method.order(state, RoundKey(0, 1))
    weighted = estimator is GradientEstimator.WEIGHTED
    for chance, counts in all_draws(LAMBDA, draws) if weighted else [(1.0, LAMBDA)]:
        lots = torch.from_numpy(np.stack([counts, np.zeros(3)]))
        total = federation.ask(method, replace(order, weights=lots), [0, 1, 2]).total
        moved = method.update(state, total)
        step += chance * to_numpy(state.parameters - moved.parameters) / 0.1
    for chance, counts in all_draws(np.full(3, 1 / 3), draws):
        lots = torch.from_numpy(np.stack([np.zeros(3), counts]))
        total = federation.ask(method, replace(order, weights=lots), [0, 1, 2]).total
        moved = method.update(state, total)
        ascent += chance * (to_numpy(moved.weights) - LAMBDA) / 1e-3
    np.testing.assert_allclose(step, gradient, atol=1e-12)
    np.testing.assert_allclose(ascent, risks - risks.mean(), atol=1e-10)


def test_lots_fall_by_lambda_for_the_gradient_and_evenly_for_the_loss() -> None:
    federation = STOCHASTIC_PROBLEM.federation()
    method = StochasticAFL(estimator=GradientEstimator.WEIGHTED, draws=2)
    state = replace(initial_progress(federation, method).state, weights=torch.from_numpy(LAMBDA))
    orders = [method.order(state, RoundKey(0, number)).weights for number in range(600)]
    assert_frequencies([own[0] for own in orders], LAMBDA, 2)
    assert_frequencies([own[1] for own in orders], np.full(3, 1 / 3), 2)


def test_all_rows_of_every_domain_give_the_step_of_afl_to_the_bit() -> None:
    federation = STOCHASTIC_PROBLEM.federation(fused=False)
    stochastic, exact = StochasticAFL(0.3, batch_size=None), AFL(0.3)
    rounds = train(federation, exact, rounds=10)
    for done in rounds:
        afl = done.progress.state
        state = replace(
            initial_progress(federation, stochastic).state,
            parameters=afl.parameters,
            weights=afl.weights,
        )
        key, everyone = RoundKey(0, done.number), [0, 1, 2]
        one = federation.ask(stochastic, stochastic.order(state, key), everyone).total
        other = federation.ask(exact, exact.order(afl, key), everyone).total
        assert torch.equal(one.step, other.step)
        assert one.scale == other.scale
        assert one.gradient_evaluations == other.gradient_evaluations == 15


@BOTH
def test_the_mean_over_rounds_is_kept_of_lambda_too(estimator: GradientEstimator) -> None:
    rounds = list(
        train(STOCHASTIC_PROBLEM.federation(), StochasticAFL(estimator=estimator), rounds=20)
    )
    mean = np.mean([to_numpy(done.weights) for done in rounds], axis=0)
    kept = to_numpy(rounds[-1].progress.state.average_weights)
    np.testing.assert_allclose(kept, mean, atol=1e-14)
    thetas = [to_numpy(done.parameters(Iterate.LAST)) for done in rounds]
    np.testing.assert_allclose(
        to_numpy(rounds[-1].parameters(Iterate.AVERAGE)), np.mean(thetas, axis=0), atol=1e-14
    )


@pytest.mark.parametrize("risks", [[0.0, 0.0, 0.0], [0.3, 0.9, 0.5]])
def test_the_penalty_pulls_lambda_to_its_penalised_maximum(risks: list[float]) -> None:
    """Max of <l, r> - c sum (l - p)^2 / p on the simplex: l_k = p_k (1 + (r_k - <p, r>) / 2c)."""
    federation, strength, draws = STOCHASTIC_PROBLEM.federation(), 0.8, 4
    method = StochasticAFL(
        adversary_rate=0.05, draws=draws, chi_squared=strength, start=AFLStart.UNIFORM
    )
    state = initial_progress(federation, method).state
    # What the sites send when every one is drawn as often as expected.
    total = replace(
        zero_sums(len(state.parameters), 3, 3),
        site_loss=torch.tensor(risks, dtype=torch.float64) * draws / 3,
        site_count=torch.ones(3, dtype=torch.int64),
    )
    for _ in range(200):
        state = method.update(state, total)
    shares, r = np.array([6.0, 6.0, 3.0]) / 15.0, np.array(risks)
    expected = shares * (1 + (r - shares @ r) / (2 * strength))
    np.testing.assert_allclose(to_numpy(state.weights), expected, atol=1e-12)


def test_the_batch_of_the_loss_is_independent_of_that_of_the_gradient() -> None:
    """Three rows that can be told apart: each is as frequent, in all nine pairs."""
    targets, draws = [1.0, 2.0, 4.0], 300
    federation = quadratic_federation([0.0], [points([[[y] for y in targets]])])
    method = StochasticAFL(1.0)
    state = initial_progress(federation, method).state
    pairs: Counter[tuple[int, int]] = Counter()
    for number in range(draws):
        reply = federation.ask(method, method.order(state, RoundKey(0, number)), [0]).total
        of_gradient = targets.index(-float(reply.step[0]))
        of_loss = targets.index(float(torch.sqrt(2 * reply.site_loss[0])))
        pairs[of_gradient, of_loss] += 1
    spread = (draws / 9 * (1 - 1 / 9)) ** 0.5
    assert len(pairs) == 9
    assert all(abs(count - draws / 9) < 5 * spread for count in pairs.values())


def test_only_drawn_sites_take_a_gradient_and_once_per_draw() -> None:
    federation = STOCHASTIC_PROBLEM.federation()
    method = StochasticAFL(0.1, estimator=GradientEstimator.WEIGHTED, draws=5, batch_size=2)
    state = initial_progress(federation, method).state
    for number in range(10):
        order = method.order(state, RoundKey(0, number))
        for site, times in enumerate(order.weights[0].tolist()):
            reply = federation.ask(method, order, [site]).total
            assert reply.gradient_evaluations == 2 * times
            assert reply.scale == times
            assert bool(reply.step.any()) == (times > 0)
            assert int(reply.site_count[site]) == 1
        assert float(order.weights[0].sum()) == float(order.weights[1].sum()) == 5


@BOTH
def test_a_site_without_rows_is_never_drawn(estimator: GradientEstimator) -> None:
    problem = softmax_problem([[2, 1], [0, 0], [1, 2]])
    with pytest.warns(UserWarning, match="site 1 has no rows"):
        federation = problem.federation()
    method = StochasticAFL(estimator=estimator, chi_squared=0.1, start=AFLStart.UNIFORM)
    state = initial_progress(federation, method).state
    for number in range(50):
        assert not method.order(state, RoundKey(0, number)).weights[:, 1].any()
    for done in train(federation, method, rounds=20):
        assert float(done.weights[1]) == 0.0
        assert float(done.weights.sum()) == pytest.approx(1.0)


def test_what_cannot_be_drawn_is_refused() -> None:
    for name, action in (
        ("draws", lambda: StochasticAFL(draws=0)),
        ("batch_size", lambda: StochasticAFL(batch_size=0)),
    ):
        assert f"{name} = 0; give a whole number of at least 1" in complaint_of(action)
    message = complaint_of(lambda: StochasticAFL(chi_squared=-1.0))
    assert "chi_squared = -1; give zero or a positive number" in message
    assert "learning_rate = 0" in complaint_of(lambda: StochasticAFL(learning_rate=0.0))
