"""FedFB (Zeng et al. 2021): its loop by hand, its constraints, and the parity that it is for."""

from typing import Any

import numpy as np
import pytest
import torch

from fedminmax.core.parity import Parity
from fedminmax.methods.fedavg import FedAvg
from fedminmax.methods.fedfb import FedFB
from fedminmax.methods.method import AnyMethod
from fedminmax.training.progress import initial_progress
from fedminmax.training.train import train
from tests.oracles import brier_gradient, project_by_bisection
from tests.parity_problems import answers, hard_gap, pooled_rows, rates, unequal_problem
from tests.problems import Problem, Vector, softmax_problem, to_numpy

BOTH = pytest.mark.parametrize("parity", list(Parity))
TWO_GROUPS = unequal_problem(sites=3, rows=15, seed=1)
THREE_GROUPS = softmax_problem([[9, 5, 7], [4, 8, 0], [0, 6, 9]], seed=5, classes=2)


@BOTH
@pytest.mark.parametrize("batch_size", [None, 4])
def test_no_rate_is_fedavg(parity: Parity, batch_size: int | None) -> None:
    method = FedFB(0.3, 0.0, parity=parity, epochs=2, batch_size=batch_size)
    fedavg = FedAvg(0.3, epochs=2, batch_size=batch_size)
    both = zip(
        train(THREE_GROUPS.federation(), method, rounds=10, participation=0.6),
        train(THREE_GROUPS.federation(), fedavg, rounds=10, participation=0.6),
        strict=True,
    )
    for one, other in both:
        torch.testing.assert_close(one.parameters(), other.parameters(), rtol=0, atol=1e-12)


@BOTH
@pytest.mark.parametrize("problem", [TWO_GROUPS, THREE_GROUPS], ids=["two", "three"])
def test_the_loop_by_hand(parity: Parity, problem: Problem) -> None:
    method = FedFB(0.3, 0.15, parity=parity, epochs=3, batch_size=None)
    expected = fedfb_by_hand(problem, parity, rounds=15, eta=0.3, alpha=0.15, epochs=3)
    moved = 0.0
    for done, (theta, weights) in zip(
        train(problem.federation(), method, rounds=15), expected, strict=True
    ):
        np.testing.assert_allclose(to_numpy(done.parameters()), theta, atol=1e-10)
        np.testing.assert_allclose(to_numpy(done.weights), weights.reshape(-1), atol=1e-10)
        moved = max(moved, float(np.ptp(weights / weights.sum(axis=0))))
    assert moved > 0.1


def fedfb_by_hand(
    problem: Problem, parity: Parity, *, rounds: int, eta: float, alpha: float, epochs: int
) -> list[tuple[Vector, Vector]]:
    """Each site descends its weighted loss; lambda moves by the pooled rows' statistics."""
    rows = problem.numpy_rows()
    x, y, group = pooled_rows(problem)
    groups = range(problem.groups)
    share = np.array([(group == a).mean() for a in groups])
    theta, weights = problem.start, np.stack([share, share])
    trace = []
    for t in range(1, rounds + 1):
        average = np.zeros_like(theta)
        for own_x, own_y, own_group in rows:
            own, v = theta, weights[own_y, own_group] / share[own_group] / len(own_y)
            for _ in range(epochs):
                own = own - eta * brier_gradient(problem, own, own_x, own_y, v)
            average += len(own_y) / len(y) * own
        if parity is Parity.DEMOGRAPHIC:
            told = answers(problem, theta, x)
        else:
            told = problem.brier_losses(theta, x, y)
        values = rates(parity, told, y, group, problem.groups)
        mu = values - values.mean()
        step = alpha / t**0.5 * mu / np.linalg.norm(mu) if np.ptp(values) > 0 else 0.0 * mu
        if parity is Parity.DEMOGRAPHIC:
            negative = np.clip(weights[0] + step, 0.0, 2.0 * share)
            weights = np.stack([negative, 2.0 * share - negative])
        else:
            weights = np.stack([share, project_by_bisection(weights[1] + step)])
        theta = average
        trace.append((theta, weights))
    return trace


@BOTH
@pytest.mark.parametrize("rate", [0.05, 5.0])
def test_mass_stays_where_it_must(parity: Parity, rate: float) -> None:
    """Per group under demographic parity; among positive rows under equal opportunity."""
    federation = THREE_GROUPS.federation()
    share = federation.census.group_shares
    method = FedFB(0.3, rate, parity=parity, epochs=1, batch_size=None)
    lowest = 1.0
    for done in train(federation, method, rounds=20, participation=0.6):
        negative, positive = done.weights.view(2, 3)
        assert float(done.weights.min()) >= 0.0
        if parity is Parity.DEMOGRAPHIC:
            torch.testing.assert_close(negative + positive, 2 * share, rtol=0, atol=1e-15)
        else:
            assert torch.equal(negative, share)
            assert abs(float(positive.sum()) - 1.0) < 1e-12
        lowest = min(lowest, float(done.weights.min()))
    assert (lowest == 0.0) == (rate == 5.0)


@BOTH
def test_a_cell_not_seen_keeps_its_weight(parity: Parity) -> None:
    """Site 2 has no row of group 0, site 1 none of group 2."""
    federation = THREE_GROUPS.federation()
    method = FedFB(0.3, 0.1, parity=parity, epochs=1, batch_size=None)
    weights = initial_progress(federation, method).state.weights
    absences = changes = 0
    for done in train(federation, method, rounds=30, seed=2, participation=0.3):
        assert len(done.participants) == 1
        counts = done.total.statistics.view(2, 2, 3)[1]
        unseen = (counts == 0).flatten()
        assert torch.equal(done.weights[unseen], weights[unseen])
        absences += int(unseen.sum())
        changes += int((done.weights != weights).sum())
        weights = done.weights
    assert absences > 10
    assert changes > 10


PLAIN = FedAvg(0.5, epochs=5, batch_size=None)


def trained(problem: Problem, method: AnyMethod[Any]) -> torch.Tensor:
    return list(train(problem.federation(), method, rounds=60))[-1].parameters()


def test_demographic_parity_comes_near() -> None:
    problem = unequal_problem()
    before, after = (
        hard_gap(Parity.DEMOGRAPHIC, problem, trained(problem, method))
        for method in (PLAIN, FedFB(0.5, 0.1, parity=Parity.DEMOGRAPHIC, epochs=5, batch_size=None))
    )
    assert before > 0.25
    assert after < 0.2 * before


def test_equal_opportunity_equalises_the_losses_of_positive_rows() -> None:
    problem = unequal_problem()
    x, y, group = pooled_rows(problem)
    gaps = []
    for method in (PLAIN, FedFB(0.5, 0.1, parity=Parity.OPPORTUNITY, epochs=5, batch_size=None)):
        losses = problem.brier_losses(to_numpy(trained(problem, method)), x, y)
        gaps.append(float(np.ptp(rates(Parity.OPPORTUNITY, losses, y, group, 2))))
    assert gaps[0] > 0.1
    assert gaps[1] < 0.1 * gaps[0]
