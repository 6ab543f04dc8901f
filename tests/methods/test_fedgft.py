"""FedGFT (Wang et al. 2024): the gradient of its pooled objective, its limits, its parity."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from fedminmax.core.messages import RoundKey
from fedminmax.core.parity import Parity
from fedminmax.methods.fedavg import FedAvg
from fedminmax.methods.fedgft import FedGFT
from fedminmax.training.progress import initial_progress
from fedminmax.training.train import train
from tests.parity_problems import pooled_rows, rates, scores, unequal_problem
from tests.problems import Problem, pooled, softmax_problem, to_numpy

BOTH = pytest.mark.parametrize("parity", list(Parity))
TWO_GROUPS = softmax_problem([[14, 9], [5, 12], [8, 0]], seed=3, classes=2)
THREE_GROUPS = softmax_problem([[9, 5, 7], [4, 8, 0], [0, 6, 9]], seed=5, classes=2)
PROBLEMS = pytest.mark.parametrize("problem", [TWO_GROUPS, THREE_GROUPS], ids=["two", "three"])


@BOTH
@pytest.mark.parametrize("batch_size", [None, 4])
def test_no_penalty_is_fedavg_to_the_bit(parity: Parity, batch_size: int | None) -> None:
    method = FedGFT(0.0, parity, learning_rate=0.3, epochs=2, batch_size=batch_size)
    fedavg = FedAvg(0.3, epochs=2, batch_size=batch_size)
    both = zip(
        train(THREE_GROUPS.federation(), method, rounds=8, participation=0.6),
        train(THREE_GROUPS.federation(), fedavg, rounds=8, participation=0.6),
        strict=True,
    )
    for one, other in both:
        assert torch.equal(one.parameters(), other.parameters())


def mean_scores(problem: Problem, parity: Parity, theta: Tensor) -> list[Tensor]:
    """m_a over the pooled rows, differentiable in theta."""
    x, y, group = pooled(problem.sites)
    p = probabilities(problem, theta, x)[:, 1]
    counted = (y == 1) | (parity is Parity.DEMOGRAPHIC)
    return [p[counted & (group == a)].mean() for a in range(problem.groups)]


def probabilities(problem: Problem, theta: Tensor, x: Tensor) -> Tensor:
    cut = 2 * problem.features
    return torch.softmax(x @ theta[:cut].view(2, problem.features).T + theta[cut:], dim=1)


def risk(problem: Problem, theta: Tensor) -> Tensor:
    """Mean Brier score of the pooled rows."""
    x, y, _ = pooled(problem.sites)
    errors = probabilities(problem, theta, x) - torch.eye(2, dtype=torch.float64)[y]
    return errors.square().sum(dim=1).mean()


@BOTH
@PROBLEMS
def test_a_full_step_descends_the_pooled_objective(parity: Parity, problem: Problem) -> None:
    """At the point whose statistics the server knows: theta - eta grad (R + penalty J)."""
    method = FedGFT(1.7, parity, learning_rate=0.3, epochs=1, batch_size=None)
    federation, everyone = problem.federation(), range(len(problem.sites))
    start = initial_progress(federation, method).state
    first = federation.ask(method, method.order(start, RoundKey(0, 1)), everyone).total
    informed = replace(method.update(start, first), parameters=start.parameters)
    second = federation.ask(method, method.order(informed, RoundKey(0, 2)), everyone).total
    moved = method.update(informed, second).parameters

    theta = torch.from_numpy(problem.start).requires_grad_()
    means = mean_scores(problem, parity, theta)
    pairs = [(m - other).square() for i, m in enumerate(means) for other in means[:i]]
    penalty = 1.7 * torch.stack(pairs).sum()
    gradient = torch.autograd.grad(risk(problem, theta) + penalty, theta)[0]
    expected = theta.detach() - 0.3 * gradient
    torch.testing.assert_close(moved, expected, rtol=0, atol=1e-12)
    plain = theta.detach() - 0.3 * torch.autograd.grad(risk(problem, theta), theta)[0]
    assert float((expected - plain).norm()) > 1e-3


@BOTH
@PROBLEMS
def test_slopes_are_those_of_the_last_round(parity: Parity, problem: Problem) -> None:
    """The whole loop with the mean scores of theta^{t-2} in round t, none in round 1."""
    method = FedGFT(0.8, parity, learning_rate=0.3, epochs=1, batch_size=None)
    theta = torch.from_numpy(problem.start)
    told: list[Tensor] = []
    for done in train(problem.federation(), method, rounds=10):
        leaf = theta.clone().requires_grad_()
        means = torch.stack(mean_scores(problem, parity, leaf))
        objective = risk(problem, leaf)
        if told:
            last = told[-1]
            slopes = 0.8 * 2 * torch.stack([(m - last).sum() for m in last])
            objective = objective + torch.dot(slopes, means)
        told.append(means.detach())
        theta = theta - 0.3 * torch.autograd.grad(objective, leaf)[0]
        torch.testing.assert_close(done.parameters(), theta, rtol=0, atol=1e-11)


@BOTH
def test_how_rows_are_split_does_not_matter(parity: Parity) -> None:
    method = FedGFT(1.0, parity, learning_rate=0.3, epochs=1, batch_size=None)
    (x, y, group), *rest = THREE_GROUPS.sites
    halves = [(x[:6], y[:6], group[:6]), (x[6:], y[6:], group[6:])]
    layouts = [THREE_GROUPS.sites, halves + rest, [pooled(THREE_GROUPS.sites)]]
    plain, split, single = (
        list(train(THREE_GROUPS.federation(sites=own), method, rounds=12))[-1].parameters()
        for own in layouts
    )
    torch.testing.assert_close(split, plain, rtol=0, atol=1e-12)
    torch.testing.assert_close(single, plain, rtol=0, atol=1e-12)


@BOTH
def test_a_group_not_seen_keeps_what_was_told_of_it(parity: Parity) -> None:
    federation = THREE_GROUPS.federation()
    method = FedGFT(0.5, parity, learning_rate=0.3, epochs=1, batch_size=None)
    before = initial_progress(federation, method).state
    absences = 0
    for done in train(federation, method, rounds=20, seed=2, participation=0.3):
        counts = done.total.statistics.view(2, 2, 3)[1]
        rows = counts[1] if parity is Parity.OPPORTUNITY else counts.sum(dim=0)
        after, unseen = done.progress.state, rows == 0
        assert torch.equal(after.rates[unseen], before.rates[unseen])
        assert torch.equal(after.row_shares[unseen], before.row_shares[unseen])
        torch.testing.assert_close(after.row_shares[~unseen], (rows / counts.sum())[~unseen])
        absences += int(unseen.sum())
        before = after
    assert absences > 5


@BOTH
def test_a_large_penalty_leaves_no_disparity(parity: Parity) -> None:
    problem = unequal_problem(sites=2, rows=100)
    x, y, group = pooled_rows(problem)
    gaps = []
    for penalty in (0.0, 1.0, 30.0):
        method = FedGFT(penalty, parity, learning_rate=0.2, epochs=1, batch_size=None)
        theta = to_numpy(list(train(problem.federation(), method, rounds=100))[-1].parameters())
        gaps.append(float(np.ptp(rates(parity, scores(problem, theta, x), y, group, 2))))
    assert gaps[0] > 0.15
    assert gaps[0] > 1.5 * gaps[1] > 3 * gaps[2]
    assert gaps[2] < 0.01


def test_local_epochs_with_small_batches_lessen_the_disparity() -> None:
    problem = unequal_problem()
    x, y, group = pooled_rows(problem)
    gaps = []
    for penalty in (0.0, 2.0):
        method = FedGFT(penalty, learning_rate=0.1, epochs=2, batch_size=30)
        theta = to_numpy(list(train(problem.federation(), method, rounds=25))[-1].parameters())
        values = scores(problem, theta, x)
        gaps.append(float(np.ptp(rates(Parity.DEMOGRAPHIC, values, y, group, 2))))
    assert gaps[1] < 0.4 * gaps[0]
