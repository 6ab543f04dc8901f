"""The first-order server: analytic games, another solver, networks, failures, partial rounds."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedminmax.core.losses import Loss, brier_loss, cross_entropy_loss, squared_error_loss
from fedminmax.methods.look_ahead import FedMinMaxFast
from fedminmax.methods.method import AnyMethod
from fedminmax.methods.shared.first_order_server import FirstOrderState
from fedminmax.methods.shared.servers import LookAheadState
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import Round, train
from tests.methods.look_ahead_problems import (
    Rows,
    by_group,
    classes,
    network,
    worst_by_scipy,
    worst_risk,
)

FIRST_ORDER = FedMinMaxFast(curvature=False)


def rounds_of(
    model: nn.Module,
    loss: Loss,
    sites: list[Rows],
    rounds: int,
    method: FedMinMaxFast = FIRST_ORDER,
    **settings: Any,
) -> list[Round[LookAheadState]]:
    federation = Simulation(model, loss, sites, **settings)
    return list(train(federation, method, rounds=rounds))


@pytest.mark.parametrize(
    ("shift", "theta", "epsilon"),
    [(0.0, 0.5, 0.0), (0.5, 0.25, 0.0), (1.5, 0.0, 0.0), (1.5, 0.1, 0.1)],
)
def test_analytic_games(shift: float, theta: float, epsilon: float) -> None:
    """r_0 = theta^2 + shift, r_1 = (theta - 1)^2: equal at (1 - shift) / 2, if that is above 0.

    With mu_1 >= 0.1 and group 0 worst: theta minimises 0.9 theta^2 + 0.1 (theta - 1)^2, at 0.1.
    A smooth minimum is known to the root of the precision: no risk tells two models apart there.
    """
    spread = math.sqrt(shift)
    rows = (
        torch.ones(3, 1, dtype=torch.float64),
        torch.tensor([-spread, spread, 1.0], dtype=torch.float64),
        torch.tensor([0, 0, 1]),
    )
    model = nn.Linear(1, 1, bias=False).double()
    method = FedMinMaxFast(epsilon, curvature=False)
    *_, last = rounds_of(model, squared_error_loss, [rows], 200, method)
    assert float(last.members) == pytest.approx(theta, abs=1e-8 if shift < 1.0 else 1e-7)


@pytest.mark.parametrize(("groups", "features", "kinds"), [(2, 3, 2), (4, 3, 4)])
def test_a_convex_problem_is_solved(groups: int, features: int, kinds: int) -> None:
    """Columns differ in size by a factor of 1,000, and their metric knows no correlations."""
    rows = classes(groups, groups, features, kinds)
    model = nn.Linear(features, kinds).double()
    *_, last = rounds_of(model, cross_entropy_loss, [rows], 400, ridge=1e-3)
    state = last.progress.state
    assert isinstance(state, FirstOrderState)
    assert state.level == pytest.approx(worst_by_scipy(rows, kinds, 1e-3), rel=2e-3)


def test_a_failed_step_costs_one_round_and_the_worst_risk_never_rises() -> None:
    rows = classes(3, 3, 3, 2)
    model, loss = network(0), brier_loss
    done = rounds_of(model, loss, [rows], 60)
    federation = Simulation(model, loss, [rows])
    answers = [worst_risk(federation.model(now.members[0]), loss, rows) for now in done]
    assert answers == sorted(answers, reverse=True)
    # Some tries failed: the models that were asked about were worse than the answer.
    assert any(
        now.worst_risk > answer + 1e-9 for now, answer in zip(done[1:], answers, strict=False)
    )
    assert answers[-1] < 0.9 * answers[0]


@pytest.mark.parametrize("rate", [1e-9, 1e9])
def test_any_rate_to_begin_with_comes_to_the_same(rate: float) -> None:
    rows = classes(3, 3, 3, 2)
    method = FedMinMaxFast(learning_rate=rate)
    *_, last = rounds_of(network(0).float(), brier_loss, [rows], 150, method)
    *_, usual = rounds_of(network(0).float(), brier_loss, [rows], 150)
    model = Simulation(network(0).float(), brier_loss, [rows]).model
    found, expected = (
        worst_risk(model(now.members[0]).double(), brier_loss, rows) for now in (last, usual)
    )
    assert found == pytest.approx(expected, abs=0.05)


def test_a_start_far_off_comes_back() -> None:
    """Weights a hundred times too large, so that losses are in the thousands."""
    rows = classes(3, 3, 3, 2)
    model = network(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(100.0)
    first, *_, last = rounds_of(model, cross_entropy_loss, [rows], 60)
    assert first.worst_risk > 1000.0
    assert last.worst_risk < 100.0


def test_the_same_answer_for_every_partition_and_path() -> None:
    rows = classes(2, 3, 4, 3)
    model = network(1, 4, 3)
    answers = [
        rounds_of(model, brier_loss, sites, 12, fused=fused)[-1].parameters()
        for sites, fused in (([rows], True), (by_group(rows), True), (by_group(rows), False))
    ]
    for other in answers[1:]:
        torch.testing.assert_close(other, answers[0], atol=1e-9, rtol=1e-9)


def test_at_the_saddle_it_stays() -> None:
    """Two groups whose rows pull the only weight apart with equal strength."""
    rows = (
        torch.ones(2, 1, dtype=torch.float64),
        torch.tensor([0.0, 1.0], dtype=torch.float64),
        torch.tensor([0, 1]),
    )
    model = nn.Linear(1, 1, bias=False).double()
    with torch.no_grad():
        model.weight.fill_(0.5)
    done = rounds_of(model, squared_error_loss, [rows], 5)
    assert [float(now.progress.state.parameters) for now in done] == pytest.approx([0.5] * 5)
    assert done[-1].weights.tolist() == pytest.approx([0.5, 0.5])


def test_with_half_of_the_sites_it_trains_on() -> None:
    rng = np.random.default_rng(0)
    x, y, group = classes(3, 3, 3, 2, rows=400)
    part = torch.from_numpy(rng.integers(0, 8, len(group)))
    sites = [(x[part == k], y[part == k], group[part == k]) for k in range(8)]
    model = network(0)
    federation = Simulation(model, brier_loss, sites)
    *_, last = train(federation, FIRST_ORDER, rounds=150, participation=0.5)
    *_, whole = train(federation, FIRST_ORDER, rounds=150)
    start, found, best = (
        worst_risk(each, brier_loss, (x, y, group))
        for each in (model, *(federation.model(now.members[0]) for now in (last, whole)))
    )
    assert found < start - 0.3 * (start - best)


def test_resuming_equals_never_stopping() -> None:
    rows = classes(3, 3, 3, 2)
    federation = Simulation(network(0), brier_loss, [rows])
    method: AnyMethod[LookAheadState] = FIRST_ORDER
    done = list(train(federation, method, rounds=20))
    *_, resumed = train(federation, method, rounds=20, resume=done[8].progress)
    assert torch.equal(resumed.members, done[-1].members)
    assert torch.equal(resumed.weights, done[-1].weights)
