"""FCFL (Cui et al. 2021): its disparity, its two stages, what it refuses.

FCFL's linear programmes: what must not rise does not rise, and no mixture does better.
"""

from dataclasses import dataclass, replace
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedminmax.core.iterates import Iterate
from fedminmax.core.losses import cross_entropy_loss, squared_error_loss
from fedminmax.core.messages import RoundKey, Sums
from fedminmax.core.parity import Parity
from fedminmax.methods.fcfl import FCFL, smoothed_maximum, stage_one_direction, stage_two_direction
from fedminmax.methods.fedavg import FedAvg
from fedminmax.methods.method import AnyMethod
from fedminmax.training.progress import initial_progress
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import train
from tests.complaints import complaint_of
from tests.oracles import Labels, brier_gradient
from tests.problems import Problem, Rows, Vector, softmax_problem, to_numpy

PROBLEM = softmax_problem([[4, 3, 2], [5, 6, 0], [4, 4, 5]], seed=5, classes=2)
ONE_GROUP = softmax_problem([[4], [6], [5]], seed=5, classes=2)
FULL = FCFL(0.3, batch_size=None)
NumpyRows = tuple[Vector, Labels, Labels]


@dataclass(frozen=True)
class Gap:
    """A disparity and its gradient."""

    value: float
    gradient: Vector


def gap_by_hand(problem: Problem, parity: Parity, theta: Vector, rows: NumpyRows) -> Gap:
    """With s = sigmoid(10 z), z = <w_1 - w_0, x> + b_1 - b_0: grad s = 10 s (1 - s) grad z."""
    x, y, group = rows
    weight = theta[: 2 * problem.features].reshape(2, problem.features)
    s = 1.0 / (1.0 + np.exp(-10.0 * (x @ (weight[1] - weight[0]) + theta[-1] - theta[-2])))
    slope = (10.0 * s * (1.0 - s))[:, None]
    each = np.hstack([-slope * x, slope * x, -slope, slope])
    counted = y == 1 if parity is Parity.OPPORTUNITY else np.ones_like(y, dtype=bool)
    own = [counted & (group == a) for a in range(problem.groups)]
    rates = [(s[mine].mean(), each[mine].mean(axis=0)) for mine in own if mine.any()]
    if len(rates) < 2:
        return Gap(0.0, np.zeros_like(theta))
    high, low = max(rates, key=lambda rate: rate[0]), min(rates, key=lambda rate: rate[0])
    return Gap(float(high[0] - low[0]), high[1] - low[1])


def mean_loss(problem: Problem, theta: Vector, x: Vector, y: Labels) -> float:
    return float(problem.brier_losses(theta, x, y).mean())


def first_replies(method: FCFL, problem: Problem) -> tuple[Sums, ...]:
    federation = problem.federation()
    order = method.order(initial_progress(federation, method).state, RoundKey(0, 1))
    return federation.ask(method, order, range(len(problem.sites))).each


@pytest.mark.parametrize("parity", list(Parity))
def test_a_reply_has_loss_and_disparity_with_their_gradients(parity: Parity) -> None:
    replies = first_replies(replace(FULL, parity=parity), PROBLEM)
    seen = 0
    for reply, rows in zip(replies, PROBLEM.numpy_rows(), strict=True):
        x, y, _ = rows
        gap = gap_by_hand(PROBLEM, parity, PROBLEM.start, rows)
        gradient = brier_gradient(PROBLEM, PROBLEM.start, x, y, np.full(len(y), 1.0 / len(y)))
        told = [mean_loss(PROBLEM, PROBLEM.start, x, y), gap.value]
        assert reply.statistics.tolist() == pytest.approx(told, abs=1e-12)
        assert to_numpy(reply.step) == pytest.approx(np.append(gradient, gap.gradient), abs=1e-12)
        seen += gap.value > 0.05
    assert seen == 3


@pytest.mark.parametrize("parity", list(Parity))
def test_the_disparitys_gradient_is_that_of_finite_differences(parity: Parity) -> None:
    reply = first_replies(replace(FULL, parity=parity), PROBLEM)[0]
    rows = PROBLEM.numpy_rows()[0]
    for place, shift in enumerate(1e-6 * np.eye(len(PROBLEM.start))):
        up, down = (
            gap_by_hand(PROBLEM, parity, PROBLEM.start + sign * shift, rows).value
            for sign in (1.0, -1.0)
        )
        slope = float(reply.step[len(PROBLEM.start) + place])
        assert slope == pytest.approx((up - down) / 2e-6, abs=1e-6)


def test_a_site_with_one_group_has_no_disparity() -> None:
    problem = softmax_problem([[5, 0], [0, 4], [3, 3]], seed=0, classes=2)
    values = [float(reply.statistics[1]) for reply in first_replies(FULL, problem)]
    assert values[:2] == [0.0, 0.0]
    assert values[2] > 0.0
    lone = first_replies(FULL, problem)[0]
    assert float(lone.step[len(problem.start) :].abs().max()) == 0.0
    assert float(lone.step[: len(problem.start)].abs().max()) > 0.0


def test_equal_opportunity_needs_positive_rows_of_two_groups() -> None:
    x, _, group = PROBLEM.sites[0]
    nobody, one_group = torch.zeros_like(group), (group == 1).long()
    sites: list[Rows] = [(x, nobody, group), (x, one_group, group)]
    problem = replace(PROBLEM, sites=sites)
    for reply in first_replies(replace(FULL, parity=Parity.OPPORTUNITY), problem):
        assert float(reply.statistics[1]) == 0.0
        assert bool(torch.isfinite(reply.step).all())


@pytest.mark.parametrize("parity", list(Parity))
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_stage_one_by_hand(parity: Parity, epsilon: float) -> None:
    """The two-vector programme in closed form, the schedule of delta, the weight decay."""
    method = FCFL(0.1, epsilon, parity=parity, batch_size=None, weight_decay=0.01)
    theta, deltas = PROBLEM.start, [0.5, 0.5]
    for done in train(PROBLEM.federation(), method, rounds=25):
        values, gradients = [], []
        for rows in PROBLEM.numpy_rows():
            x, y, _ = rows
            gap = gap_by_hand(PROBLEM, parity, theta, rows)
            own = brier_gradient(PROBLEM, theta, x, y, np.full(len(y), 1.0 / len(y)))
            values.append([mean_loss(PROBLEM, theta, x, y), gap.value])
            gradients.append([own, gap.gradient])
        told, stacked, smooth = np.array(values), np.array(gradients), []
        for kind in (0, 1):
            powers = np.exp((told[:, kind] - told[:, kind].max()) / deltas[kind])
            smooth.append(powers / powers.sum() @ stacked[:, kind])
            if 0.1 * np.linalg.norm(smooth[kind]) <= deltas[kind] and deltas[kind] > 1e-4:
                deltas[kind] *= 0.01
        theta = theta - 0.1 * (_mix(*smooth, within=told[:, 1].max() <= epsilon) + 0.01 * theta)
        assert to_numpy(done.parameters(Iterate.LAST)) == pytest.approx(theta, abs=1e-9)
    assert deltas[0] == pytest.approx(0.005)


def _mix(loss: Vector, disparity: Vector, *, within: bool) -> Vector:
    """Maximise <d, d_l>, or <d, d_g> with <d, d_l> >= 0, over d = b d_l + (1 - b) d_g."""
    cross, target = float(loss @ disparity), loss if within else disparity
    least = 0.0 if within or cross >= 0 else -cross / (float(loss @ loss) - cross)
    share = 1.0 if loss @ target >= disparity @ target else least
    mixed: Vector = share * loss + (1.0 - share) * disparity
    return mixed


def test_maxima_sharpen_twice_where_gradients_are_short() -> None:
    """From 0.5 by 0.01 while above 1e-4; a gradient of length 0.04 keeps 0.005 > 0.1 * 0.04."""
    method = replace(FULL, stage_one_rounds=4)
    federation = PROBLEM.federation()
    state, size = initial_progress(federation, method).state, len(PROBLEM.start)
    short, long = torch.zeros(2 * size), torch.zeros(2 * size)
    short[0], short[size] = 0.04, 0.06
    long[0], long[size] = 5.1, 4.9
    reply = replace(first_replies(method, PROBLEM)[0], statistics=torch.tensor([0.5, 0.1]).double())
    seen = []
    for step in (long, short, short, short, short):
        state = method.update_from_each(state, [replace(reply, step=step)])
        seen.append((state.loss_smoothing, state.disparity_smoothing))
    expected = [(0.5, 5e-3), (5e-3, 5e-3), (5e-5, 5e-3), (5e-5, 5e-3), (5e-5, 5e-3)]
    assert np.array(seen) == pytest.approx(np.array(expected))


def test_without_disparity_it_descends_the_worst_sites_loss() -> None:
    """One group: no disparity. Once delta is small, a step is that of the worst site alone."""
    method = FCFL(0.05, batch_size=None, weight_decay=0.0)
    theta, one_hot = ONE_GROUP.start, 0
    for done in train(ONE_GROUP.federation(), method, rounds=20):
        losses = [mean_loss(ONE_GROUP, theta, x, y) for x, y, _ in ONE_GROUP.numpy_rows()]
        x, y, _ = ONE_GROUP.numpy_rows()[int(np.argmax(losses))]
        gradient = brier_gradient(ONE_GROUP, theta, x, y, np.full(len(y), 1.0 / len(y)))
        after = to_numpy(done.parameters())
        # With delta = 0.005 the next site's share is exp(-24) at most.
        if done.number > 1 and np.diff(np.sort(losses))[-1] > 0.12:
            assert after == pytest.approx(theta - 0.05 * gradient, abs=1e-10)
            one_hot += 1
        theta = after
    assert one_hot >= 5


def fair_or_accurate(sites: int = 2, rows: int = 200) -> Simulation:
    """Labels follow two features, one of which is higher in group 1: accuracy costs parity."""
    generator = torch.Generator().manual_seed(3)
    parts = []
    for _ in range(sites):
        group = torch.randint(2, (rows,), generator=generator)
        x = torch.randn(rows, 2, generator=generator, dtype=torch.float64)
        x[:, 0] += 1.5 * group
        noise = 0.3 * torch.randn(rows, generator=generator, dtype=torch.float64)
        y = (x.sum(dim=1) - 0.75 + noise > 0).long()
        parts.append((x, y, group))
    model = torch.nn.Linear(2, 2, dtype=torch.float64)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    return Simulation(model, cross_entropy_loss, parts)


def site_values(federation: Simulation, parameters: torch.Tensor) -> Vector:
    """Each site's loss and disparity of these parameters over all its rows."""
    order = FULL.order(initial_progress(federation, FULL).state, RoundKey(0, 1))
    replies = federation.ask(
        FULL, replace(order, parameters=parameters), range(federation.census.sites)
    ).each
    return np.stack([to_numpy(reply.statistics) for reply in replies])


def test_the_budget_is_kept_where_it_can_be() -> None:
    """Through the end of stage one and all of stage two; without a budget it would not be."""
    federation = fair_or_accurate()
    kept, free = (
        np.stack(
            [
                site_values(federation, done.parameters())
                for done in train(
                    federation,
                    FCFL(0.1, epsilon, stage_one_rounds=40, batch_size=None),
                    rounds=80,
                )
            ]
        )
        for epsilon in (0.1, 1.0)
    )
    assert free[39:, :, 1].min() > 0.2
    assert kept[39:, :, 1].max() <= 0.1 + 0.01
    assert free[-1, :, 0].max() < kept[-1, :, 0].max() < kept[39, :, 0].max() < np.log(2.0)


def test_stage_two_raises_no_sites_loss() -> None:
    """With small full-batch steps, second-order effects apart; a step on the mean would."""
    problem = softmax_problem([[4, 3], [5, 6], [4, 4]], seed=5, classes=2, features=6)
    federation = problem.federation()

    def losses_along(method: AnyMethod[Any]) -> Vector:
        rounds = train(federation, method, rounds=60)
        models = [torch.from_numpy(problem.start), *(done.parameters() for done in rounds)]
        return np.stack([site_values(federation, model)[:, 0] for model in models])

    stage_two = FCFL(1e-2, 1.0, stage_one_rounds=0, batch_size=None, weight_decay=0.0)
    losses = losses_along(stage_two)
    assert np.diff(losses, axis=0).max() <= 1e-5
    assert (losses[0] - losses[-1]).mean() > 5e-3
    assert np.diff(losses_along(FedAvg(1e-2, 1, batch_size=None)), axis=0).max() > 1e-4


def test_batches_have_the_size_asked_for() -> None:
    replies = first_replies(FCFL(batch_size=4), PROBLEM)
    assert [reply.gradient_evaluations for reply in replies] == [8, 8, 8]
    assert [reply.gradient_evaluations for reply in first_replies(FULL, PROBLEM)] == [18, 22, 26]


def test_more_than_two_classes_and_quantities_are_refused_before_round_one() -> None:
    three = softmax_problem([[3, 3], [2, 2]], classes=3).federation()
    assert "FCFL needs labels of two classes, got 3 classes" in complaint_of(
        lambda: train(three, FULL, rounds=1)
    )
    rows = (torch.zeros(3, 1), torch.zeros(3), torch.tensor([0, 1, 1]))
    regression = Simulation(torch.nn.Linear(1, 1), squared_error_loss, [rows])
    assert "got quantities to predict" in complaint_of(lambda: train(regression, FULL, rounds=1))


def test_hyperparameters_are_checked() -> None:
    assert "learning_rate = 0" in complaint_of(lambda: FCFL(0.0))
    assert "max_disparity = -1" in complaint_of(lambda: FCFL(max_disparity=-1.0))
    assert "weight_decay = -1" in complaint_of(lambda: FCFL(weight_decay=-1.0))
    assert "stage_one_rounds = -1" in complaint_of(lambda: FCFL(stage_one_rounds=-1))
    assert "batch_size = 0" in complaint_of(lambda: FCFL(batch_size=0))


SITES = 3

gradients_of_all = st.tuples(st.integers(0, 2**32), st.sampled_from([1, 2, 3, 10])).map(
    lambda drawn: np.random.default_rng(drawn[0]).normal(size=(SITES + 1, drawn[1])) + 0.4
)


def stage_two(gradients: Vector) -> Vector:
    both = torch.from_numpy(gradients)
    return to_numpy(stage_two_direction(both[:-1], both[-1]))


def stage_one(loss: Vector, disparity: Vector, *, within_budget: bool) -> Vector:
    return to_numpy(
        stage_one_direction(
            torch.from_numpy(loss), torch.from_numpy(disparity), within_budget=within_budget
        )
    )


def best_corner(gradients: Vector, target: Vector, guarded: Vector) -> float:
    """Try every corner of {beta >= 0, sum beta = 1, <d, v> >= 0} for the largest <d, target>."""
    count = len(gradients)
    limits = np.vstack([np.eye(count), guarded @ gradients.T])
    best = -np.inf
    for chosen in combinations(range(len(limits)), count - 1):
        system = np.vstack([np.ones(count), limits[list(chosen)]])
        if np.linalg.cond(system) > 1e10:
            continue
        beta = np.linalg.solve(system, np.eye(count)[0])
        if (limits @ beta >= -1e-9).all():
            best = max(best, float(beta @ gradients @ target))
    return best


@given(gradients_of_all)
def test_in_stage_two_nothing_rises(gradients: Vector) -> None:
    assert (gradients @ stage_two(gradients) >= -1e-8).all()


@given(gradients_of_all)
def test_stage_two_lowers_the_mean_loss_the_most(gradients: Vector) -> None:
    target = gradients[:-1].mean(axis=0)
    best = best_corner(gradients, target, gradients)
    assert float(stage_two(gradients) @ target) == pytest.approx(best, abs=1e-7)


@given(gradients_of_all)
def test_stage_one_has_a_closed_form(gradients: Vector) -> None:
    """In d = b d_l + (1 - b) d_g everything is linear in b."""
    loss, disparity = gradients[:2]
    faster = loss if loss @ loss >= disparity @ loss else disparity
    assert stage_one(loss, disparity, within_budget=True) == pytest.approx(faster)
    above = stage_one(loss, disparity, within_budget=False)
    least = 0.0
    if disparity @ loss < 0:
        least = -(disparity @ loss) / (loss @ loss - disparity @ loss)
    share = 1.0 if loss @ disparity > disparity @ disparity else least
    assert above == pytest.approx(share * loss + (1.0 - share) * disparity, abs=1e-7)
    assert above @ loss >= -1e-8


def test_opposite_gradients_leave_no_direction() -> None:
    """0 = 2 v_1 + v_2 with positive weights: any direction that raises nothing is zero."""
    gradients = np.array([[1.0, 2.0], [-2.0, -4.0], [1.0, 2.0], [0.0, 0.0]])
    assert stage_two(gradients) == pytest.approx(np.zeros(2), abs=1e-9)
    assert stage_two(np.zeros((4, 2))).tolist() == [0.0, 0.0]


def test_a_sharp_maximum_is_the_worst_sites_gradient() -> None:
    values = torch.tensor([0.3, 0.7, 0.6], dtype=torch.float64)
    sharp = smoothed_maximum(values, torch.eye(3, dtype=torch.float64), 1e-4)
    assert sharp.tolist() == pytest.approx([0.0, 1.0, 0.0], abs=1e-12)
    powers = np.exp(to_numpy(values) / 0.5)
    smooth = smoothed_maximum(values, torch.eye(3, dtype=torch.float64), 0.5)
    assert to_numpy(smooth) == pytest.approx(powers / powers.sum())


def test_a_solver_that_gives_up_is_replaced_by_the_shortest_mixture(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("scipy.optimize.linprog", lambda *_, **__: SimpleNamespace(status=2))
    gradients = np.diag([1.0, 1.0, 2.0, 2.0])
    shares = np.array([1.0, 1.0, 0.25, 0.25]) / 2.5
    assert stage_two(gradients) == pytest.approx(shares @ gradients)
