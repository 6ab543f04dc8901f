"""The first-order server: analytic games, another solver, networks, failures, partial rounds.

Networks that start from a linear model: the same outputs, the same optimum, the same rounds.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedminmax.core.linear_structure import RIDGE_OF_START, linear_start_of
from fedminmax.core.losses import Loss, brier_loss, cross_entropy_loss, squared_error_loss
from fedminmax.core.models import linear, mlp
from fedminmax.core.task import Task
from fedminmax.core.workspace import model_with
from fedminmax.methods.look_ahead import FedAvgFast, FedMinMaxFast
from fedminmax.methods.method import AnyMethod
from fedminmax.methods.shared.first_order_server import FirstOrderState
from fedminmax.methods.shared.servers import LookAheadState
from fedminmax.training.checkpoint import train_resumably
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import Round, fit, train
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


METHOD = FedMinMaxFast(keep_share=0.5, linear_start=True)


def network_of(features: int, outputs: int, hidden: tuple[int, ...]) -> nn.Module:
    torch.manual_seed(3)
    return mlp(features, outputs, hidden).double()


@pytest.mark.parametrize("hidden", [(12,), (12, 13), (20, 12, 15)])
def test_the_network_computes_the_linear_model(hidden: tuple[int, ...]) -> None:
    task = Task(network_of(4, 3, hidden), cross_entropy_loss)
    start = linear_start_of(task)
    assert start is not None
    torch.manual_seed(5)
    model, x = linear(4, 3).double(), torch.randn(50, 4).double()
    flat = torch.cat([part.detach().flatten() for part in model.parameters()])
    parameters = start.network_with(task.initial_parameters, flat)
    torch.testing.assert_close(model_with(task, parameters)(x), model(x), rtol=1e-13, atol=1e-13)
    assert torch.equal(start.linear_of(parameters), flat)
    # Only some units carry it: the others are as they were.
    same = parameters == task.initial_parameters
    assert 0.2 < float(same.double().mean()) < 1.0


@pytest.mark.parametrize(
    ("model", "loss"),
    [
        (network_of(4, 3, (11,)), cross_entropy_loss),
        (nn.Sequential(nn.Linear(4, 12, bias=False), nn.ReLU(), nn.Linear(12, 3)), None),
        (nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 3)), cross_entropy_loss),
        (linear(4, 3), cross_entropy_loss),
        (network_of(4, 2, (12,)), squared_error_loss),
    ],
)
def test_other_networks_start_as_they_are(model: nn.Module, loss: Any) -> None:
    assert linear_start_of(Task(model, loss or cross_entropy_loss)) is None


@pytest.mark.parametrize("method", [METHOD, FedAvgFast(linear_start=True)])
def test_the_first_rounds_are_those_of_the_linear_model(method: Any) -> None:
    rows = classes(2, 3, 4, 2)
    scaled = (rows[0] / rows[0].std(dim=0), *rows[1:])
    zeros = linear(4, 2).double()
    for parameter in zeros.parameters():
        nn.init.zeros_(parameter)
    plain = Simulation(zeros, cross_entropy_loss, [scaled], ridge=RIDGE_OF_START)
    wide = Simulation(network_of(4, 2, (8, 8)), cross_entropy_loss, [scaled])
    x = scaled[0]
    pairs = zip(train(plain, method, rounds=3), train(wide, method, rounds=3), strict=True)
    for one, other in pairs:
        torch.testing.assert_close(other.risks, one.risks, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(other.model()(x), one.model()(x), rtol=1e-7, atol=1e-7)
        assert other.certificate is None
    # Then the network goes on from there, and only down.
    shares, kept = wide.census.group_shares, getattr(method, "keep_share", 1.0)
    after = fit(wide, method, rounds=40)
    before, now = (
        kept * float(own.risks @ shares) + (1.0 - kept) * float(own.risks.max())
        for own in (one, after)
    )
    assert now < 0.95 * before


def test_the_first_candidate_is_the_fitted_linear_model() -> None:
    """A round that improves by less than a tie would else be kept in place of the fitted model."""
    rows = classes(2, 3, 4, 2)
    federation = Simulation(network_of(4, 2, (8, 8)), cross_entropy_loss, [rows], validation=0.2)
    rounds = list(train(federation, METHOD, rounds=9))
    states: list[Any] = [done.progress.state for done in rounds]
    prepared = [n for n, state in enumerate(states, 1) if state.is_preparing]
    assert prepared == list(range(1, len(prepared) + 1))
    assert all(done.chosen is None for done in rounds[: len(prepared)])
    first = rounds[len(prepared) + 1].chosen
    assert first is not None
    assert first.round >= len(prepared) + 1


def test_a_stopped_run_goes_on_to_the_bit(tmp_path: Path) -> None:
    rows = classes(2, 3, 4, 2)
    federation = Simulation(network_of(4, 2, (8, 8)), cross_entropy_loss, [rows], validation=0.2)
    whole = fit(federation, METHOD, rounds=12)
    for rounds in (2, 7):
        list(train_resumably(tmp_path, federation, METHOD, rounds=rounds))
    *_, last = train_resumably(tmp_path, federation, METHOD, rounds=12)
    assert torch.equal(last.members, whole.members)
    assert torch.equal(last.progress.state.parameters, whole.progress.state.parameters)


def test_where_effects_are_straight_lines_the_network_is_as_good_as_they_are() -> None:
    """50 columns, 900 records: without the start, the network is far above the linear model."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 50))
    y = (x @ np.linspace(1.0, 0.0, 50) + rng.logistic(size=4000) > 0).astype(np.int64)
    group = rng.integers(2, size=4000)
    some, others = slice(0, 1000), slice(1000, None)
    rows = tuple(torch.from_numpy(part[some]) for part in (x, y, group))
    tested = torch.from_numpy(x[others]), torch.from_numpy(y[others])
    models = {
        "linear": fit(
            Simulation(linear(50, 2).double(), cross_entropy_loss, [rows], ridge=1e-4),
            FedMinMaxFast(keep_share=0.5),
            rounds=20,
        ).model()
    }
    for start in (False, True):
        federation = Simulation(
            network_of(50, 2, (32, 32)), cross_entropy_loss, [rows], validation=0.1
        )
        method = FedMinMaxFast(keep_share=0.5, linear_start=start)
        models[str(start)] = fit(federation, method, rounds=100, patience=20).model()
    with torch.no_grad():
        risks = {
            name: float(cross_entropy_loss(model(tested[0]), tested[1]).mean())
            for name, model in models.items()
        }
    assert risks["True"] < 1.01 * risks["linear"]
    assert risks["False"] > 1.05 * risks["linear"]


def test_a_group_that_cannot_be_judged_is_not_learnt_by_heart() -> None:
    """Of 100 records of a group, 10 validate, beside 300 of the other: it stays the linear model.

    The mean fit, which is about no group, goes on to the curve.
    """
    rng = np.random.default_rng(1)
    x = rng.normal(size=(9000, 4))
    group = (rng.random(9000) < 1 / 30).astype(np.int64)
    score = 3.0 * np.where(group == 1, -1.0, 1.0) * (np.abs(x[:, 0]) - 0.8)
    y = (score + rng.logistic(size=9000) > 0).astype(np.int64)
    rows = tuple(torch.from_numpy(part[:3000]) for part in (x, y, group))
    federation = Simulation(network_of(4, 2, (32, 32)), cross_entropy_loss, [rows], validation=0.1)
    tested = tuple(torch.from_numpy(part[3000:]) for part in (x, y, group))

    def risks(method: Any) -> list[float]:
        found = fit(federation, method, rounds=60, patience=30)
        assert found.chosen is not None
        assert (found.chosen.round < 15) == (method is METHOD)
        with torch.no_grad():
            losses = cross_entropy_loss(found.model()(tested[0]), tested[1])
        return [float(losses[tested[2] == number].mean()) for number in (0, 1)]

    # No linear model is better than a coin for both groups.
    assert max(risks(METHOD)) < 1.05 * np.log(2.0)
    common, rare = risks(FedAvgFast(linear_start=True))
    assert common < 0.6
    assert rare > np.log(2.0)
