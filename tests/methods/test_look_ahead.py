"""FedMinMaxFast: analytic games, another solver, Lemma 2, a proof, a saddle that stays.

FedAvgFast: the plain optimum, as scikit-learn and least squares find it, in a few rounds.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

from fedminmax.core.losses import Loss, brier_loss, cross_entropy_loss, squared_error_loss
from fedminmax.methods.look_ahead import FedAvgFast, FedMinMaxFast
from fedminmax.methods.method import AnyMethod
from fedminmax.methods.shared.second_order_state import SecondOrderState
from fedminmax.methods.shared.servers import LookAheadState
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import Round, train
from tests.methods.look_ahead_problems import Rows, by_group, classes, network, worst_by_scipy
from tests.problems import Vector

LastRound = Round[LookAheadState]


def last_round(
    model: nn.Module,
    loss: Loss,
    sites: Sequence[Rows],
    rounds: int,
    *,
    ridge: float = 0.0,
    min_weight: float = 0.0,
) -> LastRound:
    federation = Simulation(model.double(), loss, sites, ridge=ridge)
    *_, last = train(federation, FedMinMaxFast(min_weight, optimality_gap=0.0), rounds=rounds)
    return last


def known(done: LastRound) -> SecondOrderState:
    """The state of the second-order server."""
    state = done.progress.state
    assert isinstance(state, SecondOrderState)
    return state


@pytest.mark.parametrize(
    ("shift", "theta", "worst"), [(0.0, 0.5, 0.25), (0.5, 0.25, 0.5625), (1.5, 0.0, 1.5)]
)
def test_analytic_games(shift: float, theta: float, worst: float) -> None:
    """r_0 = theta^2 + shift, r_1 = (theta - 1)^2: equal at (1 - shift) / 2, if that is above 0.

    The shift is the variance of group 0's targets, +-sqrt(shift).
    """
    spread = math.sqrt(shift)
    rows = (
        torch.ones(3, 1, dtype=torch.float64),
        torch.tensor([-spread, spread, 1.0], dtype=torch.float64),
        torch.tensor([0, 0, 1]),
    )
    last = last_round(nn.Linear(1, 1, bias=False), squared_error_loss, [rows], rounds=2)
    assert float(last.members) == pytest.approx(theta, abs=1e-8)
    assert known(last).upper == pytest.approx(worst, abs=1e-8)


def test_squared_error_is_solved_by_one_round_of_sums() -> None:
    rng = np.random.default_rng(0)
    group = torch.from_numpy(rng.integers(0, 3, 60))
    x, y = torch.from_numpy(rng.normal(size=(60, 4))), torch.from_numpy(rng.normal(size=60))
    first = last_round(nn.Linear(4, 1), squared_error_loss, [(x, y, group)], rounds=1)
    later = last_round(nn.Linear(4, 1), squared_error_loss, [(x, y, group)], rounds=6)
    torch.testing.assert_close(first.members, later.members, atol=1e-9, rtol=0.0)

    def worst(theta: Vector) -> float:
        errors = (x.numpy() @ theta[:4] + theta[4] - y.numpy()) ** 2
        return max(float(errors[group.numpy() == number].mean()) for number in range(3))

    found = worst(first.members[0].numpy())
    for seed in range(200):
        near = np.random.default_rng(seed).normal(size=5) * 10.0 ** -(1 + seed % 4)
        assert worst(first.members[0].numpy() + near) >= found - 1e-12


@pytest.mark.parametrize("start", [0, 4])
@pytest.mark.parametrize(("groups", "features", "kinds"), [(2, 3, 2), (5, 6, 2), (4, 3, 4)])
def test_it_agrees_with_another_solver_and_proves_it(
    groups: int, features: int, kinds: int, start: int
) -> None:
    """Start 4 of four classes has a loss of 26: hardly a row has curvature there."""
    torch.manual_seed(start)
    rows = classes(groups, groups, features, kinds)
    ridge = 1e-3
    last = last_round(nn.Linear(features, kinds), cross_entropy_loss, [rows], 20, ridge=ridge)
    state = known(last)
    assert state.upper == pytest.approx(worst_by_scipy(rows, kinds, ridge), rel=1e-6)
    assert state.lower <= state.upper
    assert state.upper - state.lower <= 1e-6 * state.upper


def test_bounds_bracket_the_optimum_in_every_round_and_the_worst_risk_never_rises() -> None:
    rows = classes(1, 6, 5, 2)
    federation = Simulation(nn.Linear(5, 2).double(), cross_entropy_loss, [rows], ridge=0.01)
    states = [
        known(done) for done in train(federation, FedMinMaxFast(optimality_gap=0.0), rounds=15)
    ]
    best = states[-1].upper
    assert all(state.lower <= best <= state.upper for state in states)
    uppers, lowers = ([getattr(s, name) for s in states] for name in ("upper", "lower"))
    assert uppers == sorted(uppers, reverse=True)
    assert lowers == sorted(lowers)
    assert best - lowers[-1] < 1e-8


def test_squared_error_is_proved_by_its_first_round_of_sums() -> None:
    """A second round only confirms it; the penalty is part of both bounds."""
    rng = np.random.default_rng(3)
    x, y = torch.from_numpy(rng.normal(size=(80, 4))), torch.from_numpy(rng.normal(size=80))
    rows = (x, y, torch.from_numpy(rng.integers(0, 3, 80)))
    first = last_round(nn.Linear(4, 1), squared_error_loss, [rows], 1, ridge=0.01)
    later = last_round(nn.Linear(4, 1), squared_error_loss, [rows], 3, ridge=0.01)
    proved, again = first.progress.state.certificate, later.progress.state.certificate
    assert proved is not None
    assert again is not None
    assert proved.gap < 1e-10
    assert proved.upper == pytest.approx(again.upper, rel=1e-11)
    length = float(first.members.norm())
    assert proved.penalty == pytest.approx(0.005 * length**2, rel=1e-12)
    errors = (x @ first.members[0, :4] + first.members[0, 4] - y) ** 2
    worst = max(float(errors[rows[2] == group].mean()) for group in range(3))
    assert proved.risk == pytest.approx(worst, rel=1e-11)


def test_who_holds_the_rows_changes_nothing_that_is_proved() -> None:
    x, y, group = classes(2, 3, 4, 3)
    sites = [(x[group == own], y[group == own], group[group == own]) for own in range(3)]
    model = nn.Linear(4, 3)
    pooled = last_round(model, cross_entropy_loss, [(x, y, group)], 6, ridge=1e-3)
    spread = last_round(model, cross_entropy_loss, sites, 6, ridge=1e-3)
    one, other = pooled.progress.state.certificate, spread.progress.state.certificate
    assert one is not None
    assert other is not None
    assert (one.lower, one.upper) == pytest.approx((other.lower, other.upper), rel=1e-9)


def test_a_round_without_everybody_proves_nothing() -> None:
    x, y, group = classes(2, 3, 4, 2)
    halves = [(x[start::2], y[start::2], group[start::2]) for start in (0, 1)]
    model = nn.Linear(4, 2).double()
    federation = Simulation(model, cross_entropy_loss, halves, ridge=1e-3)
    rounds = train(federation, FedMinMaxFast(optimality_gap=0.0), rounds=5, participation=0.5)
    assert all(done.progress.state.certificate is None for done in rounds)


def test_brier_is_not_convex_and_has_no_certificate() -> None:
    last = last_round(nn.Linear(4, 2), brier_loss, [classes(5, 4, 4, 2)], 5, ridge=1e-3)
    assert last.progress.state.certificate is None


def test_with_a_floor_the_answer_is_the_floored_games() -> None:
    """r_0 = theta^2, r_1 = (theta - 1)^2 + 3 with mu_0 >= 0.1: theta = 0.9, by hand."""
    rows = (
        torch.ones(3, 1, dtype=torch.float64),
        torch.tensor([0.0, 1 - math.sqrt(3), 1 + math.sqrt(3)], dtype=torch.float64),
        torch.tensor([0, 1, 1]),
    )
    model = nn.Linear(1, 1, bias=False)
    last = last_round(model, squared_error_loss, [rows], 2, min_weight=0.1)
    assert float(last.members) == pytest.approx(0.9, abs=1e-8)
    assert last.weights.tolist() == pytest.approx([0.1, 0.9], abs=1e-9)


@pytest.mark.parametrize("loss", [brier_loss, cross_entropy_loss])
def test_the_same_answer_for_every_partition(loss: Loss) -> None:
    """Lemma 2: only sums travel; sites may lack groups, and the plain path adds one by one."""
    x, y, group = classes(2, 3, 4, 3)
    torch.manual_seed(0)
    model = nn.Linear(4, 3).double()
    parts = [group == 0, group == 1, group == 2]
    spread = [(x[own], y[own], group[own]) for own in parts]
    answers = []
    for sites, fused in (([(x, y, group)], True), (spread, True), (spread, False)):
        federation = Simulation(model, loss, sites, fused=fused, ridge=1e-3)
        *_, last = train(federation, FedMinMaxFast(optimality_gap=0.0), rounds=4)
        answers.append(last.parameters())
    for other in answers[1:]:
        torch.testing.assert_close(other, answers[0], atol=1e-9, rtol=1e-9)


def test_at_the_saddle_it_stays() -> None:
    rows = classes(4, 3, 4, 2)
    model = nn.Linear(4, 2).double()
    federation = Simulation(model, cross_entropy_loss, [rows], ridge=0.1)
    *_, last = train(federation, FedMinMaxFast(optimality_gap=0.0), rounds=20)
    solved = federation.model(last.members[0])
    again = Simulation(solved, cross_entropy_loss, [rows], ridge=0.1)
    *_, moved = train(again, FedMinMaxFast(optimality_gap=0.0), rounds=3)
    torch.testing.assert_close(moved.members, last.members, atol=1e-7, rtol=0.0)


def test_brier_reaches_a_point_that_no_group_weights_improve() -> None:
    """Stationary: the weighted gradient vanishes, and weights are on the worst groups alone."""
    rows = classes(5, 4, 4, 2, rows=400)
    last = last_round(nn.Linear(4, 2), brier_loss, [rows], rounds=60)
    state = known(last)
    slope = state.weights @ state.slopes
    scale = state.slopes.norm(dim=1).max()
    assert float(slope.norm()) < 1e-4 * max(float(scale), 1e-3)
    played = state.weights > 1e-6
    assert float(state.risks.max() - state.risks[played].min()) < 1e-6


def test_it_stops_at_the_gap_and_goes_on_from_there() -> None:
    """A smaller gap is the same run, only longer."""
    rows = classes(1, 6, 5, 2)
    model = nn.Linear(5, 2).double()
    federation = Simulation(model, cross_entropy_loss, [rows], ridge=0.01)
    *before, stopped = train(federation, FedMinMaxFast(optimality_gap=1e-2), rounds=30)
    assert stopped.certificate is not None
    assert stopped.certificate.gap <= 1e-2
    assert all(done.remaining is None or done.remaining > 1e-2 for done in before)
    *_, later = train(
        federation, FedMinMaxFast(optimality_gap=1e-6), rounds=30, resume=stopped.progress
    )
    *_, at_once = train(federation, FedMinMaxFast(optimality_gap=1e-6), rounds=30)
    assert later.number == at_once.number > stopped.number
    assert torch.equal(later.members, at_once.members)
    assert list(train(federation, FedMinMaxFast(), rounds=30, resume=at_once.progress)) == []


def test_without_a_proof_it_stops_when_the_next_step_promises_nothing() -> None:
    rows = classes(5, 4, 4, 2, rows=400)
    federation = Simulation(nn.Linear(4, 2).double(), brier_loss, [rows])
    *_, last = train(federation, FedMinMaxFast(), rounds=200)
    *_, longest = train(federation, FedMinMaxFast(optimality_gap=0.0), rounds=last.number + 20)
    assert last.number < 100
    assert last.certificate is None
    best, worst = (known(done).upper for done in (longest, last))
    assert worst - best <= 1e-3 * best


@pytest.mark.parametrize("kind", ["squared error", "cross-entropy"])
@pytest.mark.parametrize("method", [FedMinMaxFast(), FedAvgFast()], ids=lambda own: own.name)
def test_raw_columns_of_any_unit_give_the_same_answer(kind: str, method: AnyMethod[Any]) -> None:
    """A linear model without a ridge does not care in which unit a column is."""
    x, y, group = classes(5, 3, 3, 2, rows=300)
    x = (x - x.mean(dim=0)) / x.std(dim=0)
    loss, target = (
        (squared_error_loss, y.double() + x @ torch.tensor([1.0, 2.0, 3.0]).double())
        if kind == "squared error"
        else (cross_entropy_loss, y)
    )
    risks = []
    for units in ([1.0, 1.0, 1.0], [1e5, 1e-4, 1.0], [1e-6, 1.0, 1e6]):
        own = x * torch.tensor(units).double()
        model = nn.Linear(3, 1 if kind == "squared error" else 2).double()
        nn.init.zeros_(model.weight)
        nn.init.zeros_(model.bias)
        federation = Simulation(model, loss, [(own, target, group)])
        *_, last = train(federation, method, rounds=50)
        assert last.number < 20
        with torch.no_grad():
            losses = loss(federation.model(last.members[0])(own), target)
        means = [float(losses[group == number].mean()) for number in range(3)]
        risks.append(max(means) if isinstance(method, FedMinMaxFast) else float(losses.mean()))
    assert risks[1:] == pytest.approx(risks[:1] * 2, rel=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_a_huge_first_risk_does_not_hide_what_is_left(seed: int) -> None:
    """A random start on a column far from 0 has a risk of 1e13, beside which 1 cannot be seen."""
    x, y, group = classes(5, 3, 3, 2, rows=300)
    x = (x - x.mean(dim=0)) / x.std(dim=0)
    target = y.double() * 3.0 + x @ torch.tensor([1.0, 2.0, 3.0]).double()
    risks = []
    for shift, unit in ((0.0, 1.0), (1e7, 1e6)):
        own = torch.cat([x[:, :1] * unit + shift, x[:, 1:]], dim=1)
        torch.manual_seed(seed)
        model = nn.Linear(3, 1).double()
        federation = Simulation(model, squared_error_loss, [(own, target, group)])
        *_, last = train(federation, FedMinMaxFast(), rounds=50)
        assert last.number < 10
        with torch.no_grad():
            losses = squared_error_loss(federation.model(last.members[0])(own), target)
        risks.append(max(float(losses[group == number].mean()) for number in range(3)))
    assert risks[1] == pytest.approx(risks[0], rel=1e-3)


@pytest.mark.parametrize("kind", [torch.float64, torch.float32])
def test_a_fit_without_error_is_done(kind: torch.dtype) -> None:
    x, _, group = classes(5, 3, 3, 2, rows=50)
    y = x @ torch.tensor([1.0, 2.0, 3.0]).double()
    model = nn.Linear(3, 1).to(kind)
    federation = Simulation(model, squared_error_loss, [(x.to(kind), y.to(kind), group)])
    *_, last = train(federation, FedMinMaxFast(), rounds=50)
    assert last.number < 5


def test_a_start_at_the_optimum_is_done_without_a_ridge() -> None:
    """No label depends on the features: equal chances are best, and the model of zeros has them."""
    x = torch.tensor([[1.0], [-1.0]], dtype=torch.float64).repeat(20, 1)
    y, group = torch.arange(40) // 2 % 2, torch.arange(40) // 4 % 2
    model = nn.Linear(1, 2).double()
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    federation = Simulation(model, cross_entropy_loss, [(x, y, group)])
    *_, last = train(federation, FedMinMaxFast(), rounds=50)
    assert last.number < 3


def test_logistic_regression_is_that_of_scikit_learn() -> None:
    """A ridge m/2 |theta|^2 on the mean of n rows is scikit-learn's with C = 1 / (m n)."""
    x, y, group = classes(0, 5, 3, 4)
    model = nn.Linear(x.shape[1], int(y.max()) + 1, bias=False).double()
    federation = Simulation(model, cross_entropy_loss, by_group((x, y, group)), ridge=1e-2)
    *_, last = train(federation, FedAvgFast(optimality_gap=0.0), rounds=12)
    other = LogisticRegression(C=1 / (1e-2 * len(x)), fit_intercept=False, tol=1e-12, max_iter=5000)
    other.fit(x.numpy(), y.numpy())
    ours = last.members[0].reshape(model.weight.shape).numpy()
    shares = torch.softmax(x @ torch.from_numpy(ours).T, dim=1).numpy()
    np.testing.assert_allclose(shares, other.predict_proba(x.numpy()), atol=1e-6)


def test_least_squares_take_one_round() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 3, dtype=torch.float64, generator=generator)
    y = torch.randn(40, dtype=torch.float64, generator=generator)
    group = torch.arange(40) % 2
    model = nn.Linear(3, 1, bias=False).double()
    federation = Simulation(model, squared_error_loss, [(x, y, group)])
    *_, last = train(federation, FedAvgFast(), rounds=5)
    least = np.linalg.lstsq(x.numpy(), y.numpy(), rcond=None)[0]
    np.testing.assert_allclose(last.members[0].numpy(), least, atol=1e-9)
    assert last.number <= 2


@pytest.mark.parametrize("model", [nn.Linear(3, 2).double(), network(0)])
def test_the_mean_risk_never_rises_and_nobody_is_weighed(model: nn.Module) -> None:
    rows = classes(3, 3, 3, 2)
    federation = Simulation(model, brier_loss, by_group(rows))
    shares = federation.census.group_shares
    best = float("inf")
    for done in train(federation, FedAvgFast(optimality_gap=0.0), rounds=15):
        assert len(done.weights) == 0
        assert done.certificate is None
        answer = federation.model(done.members[0])
        mean = float(brier_loss(answer(rows[0]), rows[1]).mean().detach())
        assert mean <= best + 1e-12
        best = mean
    first = float(shares @ next(train(federation, FedAvgFast(), rounds=1)).risks)
    assert best < 0.95 * first
