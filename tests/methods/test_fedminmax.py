"""FedMinMax against Algorithms 1 and 2 of Papadaki et al. 2021, written as numpy loops.

FedMinMax with local epochs: one full batch is Algorithm 1; more steps use fixed weights.
"""

from dataclasses import replace

import numpy as np
import pytest

from fedminmax.core.iterates import Iterate
from fedminmax.methods.fedavg import FedAvg
from fedminmax.methods.fedminmax import FedMinMax, FedMinMaxLocal
from fedminmax.studies.study import papers_iterate
from fedminmax.training.progress import initial_progress
from fedminmax.training.train import train
from tests.complaints import complaint_of
from tests.oracles import (
    Trace,
    brier_gradient,
    centralized_by_hand,
    fedminmax_by_hand,
    project_by_bisection,
)
from tests.problems import Problem, softmax_problem, to_numpy

ROUNDS = 60
PROBLEM = softmax_problem([[4, 0, 2], [1, 5, 0], [0, 0, 3]], seed=1)


def assert_follows(problem: Problem, method: FedMinMax, trace: Trace) -> None:
    last = None
    for done in train(problem.federation(), method, rounds=ROUNDS):
        at = done.number
        np.testing.assert_allclose(
            to_numpy(done.parameters(Iterate.LAST)), trace.thetas[at], atol=1e-12
        )
        np.testing.assert_allclose(to_numpy(done.weights), trace.weights[at], atol=1e-12)
        np.testing.assert_allclose(to_numpy(done.risks), trace.risks[at - 1], atol=1e-12)
        last = done
    assert last is not None
    assert last.number == ROUNDS
    average = last.parameters(Iterate.AVERAGE)
    np.testing.assert_allclose(to_numpy(average), trace.average, atol=1e-12)


@pytest.mark.parametrize("eta_mu", [0.0, 0.1, 2.0])
def test_algorithm_1(eta_mu: float) -> None:
    method = FedMinMax(learning_rate=0.3, adversary_rate=eta_mu)
    trace = fedminmax_by_hand(PROBLEM, rounds=ROUNDS, eta=0.3, eta_mu=eta_mu)
    assert_follows(PROBLEM, method, trace)


@pytest.mark.parametrize("eta_mu", [0.1, 2.0])
def test_algorithm_2_on_the_pooled_rows(eta_mu: float) -> None:
    method = FedMinMax(learning_rate=0.3, adversary_rate=eta_mu)
    trace = centralized_by_hand(PROBLEM, rounds=ROUNDS, eta=0.3, eta_mu=eta_mu)
    assert_follows(PROBLEM, method, trace)


@pytest.mark.parametrize("epsilon", [0.05, 0.2, 1 / 3])
def test_algorithm_1_with_a_floor(epsilon: float) -> None:
    method = FedMinMax(learning_rate=0.3, adversary_rate=0.5, min_weight=epsilon)
    trace = fedminmax_by_hand(PROBLEM, rounds=ROUNDS, eta=0.3, eta_mu=0.5, epsilon=epsilon)
    assert min(weights.min() for weights in trace.weights) >= epsilon - 1e-12
    assert_follows(PROBLEM, method, trace)


def test_with_a_share_kept_the_adversary_distributes_the_rest() -> None:
    """At a rate this high, all that may move goes to the worst group; 0.4 of each third stays."""
    method = FedMinMax(learning_rate=0.01, adversary_rate=1e3, keep_share=0.4)
    *_, last = train(PROBLEM.federation(), method, rounds=5)
    expected = np.full(3, 0.4 / 3)
    expected[int(last.risks.argmax())] += 0.6
    np.testing.assert_allclose(to_numpy(last.weights), expected, atol=1e-12)


def test_mu_starts_at_the_group_shares() -> None:
    """Columns of the table: 5, 5 and 5 of 15 rows would hide it, so take 6, 2 and 4 of 12."""
    federation = softmax_problem([[4, 0, 1], [2, 2, 3]]).federation()
    assert initial_progress(federation, FedMinMax()).state.weights.tolist() == [0.5, 1 / 6, 1 / 3]


def test_mu_starts_inside_the_floor() -> None:
    """(.9, .1) with epsilon .2: nearest is (.8, .2)."""
    state = initial_progress(
        softmax_problem([[9, 1]]).federation(), FedMinMax(min_weight=0.2)
    ).state
    np.testing.assert_allclose(to_numpy(state.weights), [0.8, 0.2], atol=1e-15)


def test_a_floor_without_room_is_refused_before_the_first_round() -> None:
    method = FedMinMax(min_weight=0.4)
    message = complaint_of(lambda: train(PROBLEM.federation(), method, rounds=1))
    assert "min_weight = 0.4 with 3 groups" in message
    assert "at most 0.333333" in message


def test_gradient_evaluations_are_one_per_row_and_round() -> None:
    done = list(train(PROBLEM.federation(), FedMinMax(), rounds=4))[-1]
    assert done.progress.gradient_evaluations == 4 * 15


def test_runs_answer_with_the_tail_average_and_studies_show_the_papers_average() -> None:
    assert FedMinMax().output is Iterate.TAIL_AVERAGE
    assert papers_iterate(FedMinMax()) is Iterate.AVERAGE
    assert papers_iterate(FedAvg()) is FedAvg().output is Iterate.LAST


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
