"""SCAFF-PD over groups (Yu et al. 2023): its loop by hand, its fixed points, its limits.

Quadratic games and their saddle points are those of tests/theory/test_quadratic_games.py.
"""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from fedminmax.core.iterates import Iterate
from fedminmax.core.losses import brier_loss
from fedminmax.core.messages import RoundKey
from fedminmax.core.randomness import Purpose, torch_stream
from fedminmax.methods.fedminmax import FedMinMaxLocal
from fedminmax.methods.group_scaff_pd import GroupSCAFFPD
from fedminmax.training.progress import initial_progress
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import train
from tests.complaints import complaint_of
from tests.oracles import (
    Labels,
    brier_gradient,
    fedminmax_by_hand,
    project_by_bisection,
)
from tests.problems import (
    Problem,
    Rows,
    Vector,
    image_rows,
    mean_gradient,
    points,
    pooled,
    quadratic_federation,
    small_cnn,
    softmax_problem,
    start_vector,
    to_numpy,
)

PROBLEM = softmax_problem([[4, 0, 2], [1, 5, 0], [0, 0, 3], [2, 2, 0]], seed=1)
ETA, ETA_MU = 0.3, 0.5


@dataclass(frozen=True)
class Point:
    """Where the loop by hand stands; risks are NaN for a group that was never seen."""

    theta: Vector
    mu: Vector
    risks: Vector


def round_by_hand(
    problem: Problem,
    point: Point,
    participants: tuple[int, ...],
    method: GroupSCAFFPD,
    batches: list[list[Labels]],
) -> Point:
    """One round for these sites; ``batches[k]`` are the rows of site k's steps."""
    everyone = problem.numpy_rows()
    rho = np.bincount(np.concatenate([g for _, _, g in everyone]), minlength=problem.groups)
    rho = rho / rho.sum()
    rows = [everyone[number] for number in participants]
    loss, count = np.zeros(problem.groups), np.zeros(problem.groups)
    for x, y, group in rows:
        loss += np.bincount(group, problem.brier_losses(point.theta, x, y), problem.groups)
        count += np.bincount(group, minlength=problem.groups)
    seen = count > 0
    risks = point.risks.copy()
    risks[seen] = loss[seen] / count[seen]
    before = np.where(np.isnan(point.risks), risks, point.risks)
    ascended = point.mu + ETA_MU * (risks + method.extrapolation * (risks - before))
    mu = point.mu.copy()
    mu[seen] = project_by_bisection(ascended[seen], floor=method.min_weight, total=mu[seen].sum())

    def gradient(theta: Vector, x: Vector, y: Labels, group: Labels) -> Vector:
        return brier_gradient(problem, theta, x, y, (mu / rho)[group] / len(y))

    total = sum(len(y) for _, y, _ in rows)
    shares = [len(y) / total for _, y, _ in rows]
    own_gradients = [gradient(point.theta, *own) for own in rows]
    c = np.average(own_gradients, axis=0, weights=shares)
    ends = []
    for number, (x, y, group), full in zip(participants, rows, own_gradients, strict=True):
        u = point.theta
        for batch in batches[number]:
            u = u - ETA * (gradient(u, x[batch], y[batch], group[batch]) - full + c)
        ends.append(u)
    return Point(np.average(ends, axis=0, weights=shares), mu, risks)


def start_by_hand(problem: Problem) -> Point:
    group = np.concatenate([g for _, _, g in problem.numpy_rows()])
    rho = np.bincount(group, minlength=problem.groups) / len(group)
    return Point(problem.start, rho, np.full(problem.groups, np.nan))


def full_batches(problem: Problem, steps: int) -> list[list[Labels]]:
    return [[np.arange(len(y), dtype=np.int64)] * steps for _, y, _ in problem.numpy_rows()]


@pytest.mark.parametrize("extrapolation", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("epochs", [1, 4])
@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_the_loop_by_hand(extrapolation: float, epochs: int, participation: float) -> None:
    method = GroupSCAFFPD(ETA, ETA_MU, extrapolation=extrapolation, epochs=epochs, batch_size=None)
    point, batches = start_by_hand(PROBLEM), full_batches(PROBLEM, epochs)
    absences = 0
    for done in train(PROBLEM.federation(), method, rounds=15, participation=participation):
        point = round_by_hand(PROBLEM, point, done.participants, method, batches)
        np.testing.assert_allclose(to_numpy(done.parameters()), point.theta, atol=1e-11)
        np.testing.assert_allclose(to_numpy(done.weights), point.mu, atol=1e-11)
        absences += int(done.risks.isnan().sum())
    assert (absences > 0) == (participation < 1.0)


def test_small_batches_by_hand() -> None:
    """Every step is corrected by the full batch's gradient at the model that was broadcast."""
    method = GroupSCAFFPD(ETA, ETA_MU, epochs=3, batch_size=2)
    point = start_by_hand(PROBLEM)
    for done in train(PROBLEM.federation(), method, rounds=5, seed=7):
        batches = [_draw(len(y), k, done.number) for k, (_, y, _) in enumerate(PROBLEM.sites)]
        point = round_by_hand(PROBLEM, point, done.participants, method, batches)
        np.testing.assert_allclose(to_numpy(done.parameters()), point.theta, atol=1e-11)


def _draw(rows: int, site: int, number: int) -> list[Labels]:
    """Three epochs of pairs in the order of the second question's stream."""
    generator = torch_stream(7, Purpose.SECOND_REQUEST, number, site)
    orders = [np.array(torch.randperm(rows, generator=generator).tolist()) for _ in range(3)]
    return [order[i : i + 2] for order in orders for i in range(0, rows, 2)]


def test_one_full_batch_is_a_step_of_algorithm_1_with_the_new_weights() -> None:
    """theta - eta c, where c = sum_a mu_a grad r_a of all rows pooled, wherever they are."""
    method = GroupSCAFFPD(ETA, ETA_MU, extrapolation=0.0, epochs=1, batch_size=None)
    everything = pooled(PROBLEM.sites)
    both = zip(
        train(PROBLEM.federation(), method, rounds=8),
        train(PROBLEM.federation(sites=[everything]), method, rounds=8),
        strict=True,
    )
    x, y, group = replace(PROBLEM, sites=[everything]).numpy_rows()[0]
    count, theta = np.bincount(group), PROBLEM.start
    for spread, together in both:
        mu = to_numpy(spread.weights)
        c = brier_gradient(PROBLEM, theta, x, y, (mu / count)[group])
        state = spread.progress.state
        np.testing.assert_allclose(to_numpy(state.direction), c, atol=1e-13)
        np.testing.assert_allclose(to_numpy(spread.parameters()), theta - ETA * c, atol=1e-13)
        torch.testing.assert_close(spread.parameters(), together.parameters(), atol=1e-12, rtol=0)
        theta = to_numpy(spread.parameters())


def test_without_adversary_one_full_batch_is_gradient_descent() -> None:
    method = GroupSCAFFPD(ETA, 0.0, epochs=1, batch_size=None)
    trace = fedminmax_by_hand(PROBLEM, rounds=10, eta=ETA, eta_mu=0.0)
    for done in train(PROBLEM.federation(), method, rounds=10):
        np.testing.assert_allclose(
            to_numpy(done.parameters()), trace.thetas[done.number], atol=1e-12
        )


SPREAD = float(np.sqrt(0.5))
# b_0 = 1/4, b_1 = 0: the saddle is theta = 1/4, mu = (3/4, 1/4). No two sites are alike.
UNEQUAL = [
    points([[[-SPREAD], [SPREAD], [-SPREAD]]]),
    points([[], [[1.0], [1.0], [1.0]]]),
    points([[[SPREAD]], [[1.0]]]),
]


SADDLE = torch.tensor([0.75, 0.25], dtype=torch.float64)


@pytest.mark.parametrize("extrapolation", [0.0, 1.0])
@pytest.mark.parametrize("epochs", [1, 2, 10])
def test_at_a_saddle_a_round_is_the_identity(extrapolation: float, epochs: int) -> None:
    method = GroupSCAFFPD(0.5, 0.5, extrapolation=extrapolation, epochs=epochs, batch_size=None)
    federation = quadratic_federation([0.25], UNEQUAL)
    start = initial_progress(federation, method)
    there = replace(start, state=replace(start.state, weights=SADDLE))
    for done in train(federation, method, rounds=3, resume=there):
        np.testing.assert_allclose(to_numpy(done.parameters()), [0.25], atol=1e-15)
        np.testing.assert_allclose(to_numpy(done.weights), to_numpy(SADDLE), atol=1e-15)


@pytest.mark.parametrize("epochs", [2, 10])
def test_from_the_same_saddle_plain_local_steps_drift_away(epochs: int) -> None:
    """What the correction is for: these sites' own optima do not balance."""
    method = FedMinMaxLocal(0.5, 0.5, epochs=epochs, batch_size=None)
    federation = quadratic_federation([0.25], UNEQUAL)
    start = initial_progress(federation, method)
    there = replace(start, state=replace(start.state, weights=SADDLE))
    done = next(train(federation, method, rounds=1, resume=there))
    assert abs(float(done.parameters(Iterate.LAST)) - 0.25) > 0.02


OBTUSE = [
    points([[[0.0, 0.0], [0.0, 0.0]], [[4.0, 0.0]]]),
    points([[[0.0, 0.0]], [], [[2.0, 0.5]]]),
    points([[], [[4.0, 0.0], [4.0, 0.0]], [[2.0, 0.5], [2.0, 0.5]]]),
]
SPLIT = [points([[[0.0]]]), points([[[0.0]], [[1.0]] * 4]), points([[[0.0]], [[1.0]]])]
CORNER = [
    points([[[-1.5], [1.5]]]),
    points([[[-1.5]], [[1.0], [1.0], [1.0]]]),
    points([[[1.5]], [[1.0]]]),
]
Game = tuple[list[Rows], list[float], list[float]]
GAMES: list[Game] = [
    (SPLIT, [0.5], [0.5, 0.5]),
    (UNEQUAL, [0.25], [0.75, 0.25]),
    (CORNER, [0.0], [1.0, 0.0]),
    (OBTUSE, [2.0, 0.0], [0.5, 0.5, 0.0]),
]


@pytest.mark.parametrize("extrapolation", [0.0, 1.0])
@pytest.mark.parametrize("game", GAMES, ids=["split", "unequal", "corner", "obtuse"])
def test_local_steps_reach_the_minimax_of_unlike_sites(game: Game, extrapolation: float) -> None:
    sites, theta, mu = game
    method = GroupSCAFFPD(
        0.2, 0.4 / len(theta) ** 3, extrapolation=extrapolation, epochs=3, batch_size=None
    )
    federation = quadratic_federation([0.9] * len(theta), sites)
    done = list(train(federation, method, rounds=80))[-1]
    np.testing.assert_allclose(to_numpy(done.parameters()), theta, atol=1e-6)
    np.testing.assert_allclose(to_numpy(done.weights), mu, atol=1e-6)


def test_a_group_without_weight_comes_back() -> None:
    """From theta = 5 group 1 at c = 1 loses all weight at first, yet its risk is still told."""
    method = GroupSCAFFPD(0.2, 0.4, epochs=3, batch_size=None)
    done = list(train(quadratic_federation([5.0], SPLIT), method, rounds=80))
    assert done[0].weights.tolist() == [1.0, 0.0]
    np.testing.assert_allclose(to_numpy(done[-1].weights), [0.5, 0.5], atol=1e-6)


def test_a_floor_holds_and_moves_the_corner_inside() -> None:
    """mu* = (1 - epsilon, epsilon) and theta* = epsilon."""
    method = GroupSCAFFPD(0.2, 0.4, min_weight=0.05, epochs=3, batch_size=None)
    done = list(train(quadratic_federation([0.9], CORNER), method, rounds=60))[-1]
    np.testing.assert_allclose(to_numpy(done.weights), [0.95, 0.05], atol=1e-12)
    np.testing.assert_allclose(to_numpy(done.parameters()), [0.05], atol=1e-9)


def test_a_round_is_two_questions_and_counts_all_gradients() -> None:
    """n gradients by group, n for the correction, n per epoch of steps."""
    federation = PROBLEM.federation()
    method = GroupSCAFFPD(epochs=4, batch_size=2)
    done = list(train(federation, method, rounds=3))[-1]
    rows = int(federation.census.counts.sum())
    assert done.progress.gradient_evaluations == 3 * rows * (1 + 1 + 4)
    state, key = done.progress.state, RoundKey(0, 4)
    assert method.ask_again(state, key) is None
    first = method.order(state, key)
    assert first.phase == 0
    half_way = method.update(state, federation.ask(method, first, [0, 1, 2, 3]).total)
    second = method.ask_again(half_way, key)
    assert second is not None
    assert second.phase == 1
    assert torch.equal(second.parameters, state.parameters)
    ended = method.update_again(half_way, federation.ask(method, second, [0, 1, 2, 3]).total)
    assert method.ask_again(ended, key) is None


def test_the_correction_on_a_cnn_is_taken_weight_by_weight() -> None:
    """Against autograd on the plain model: its convolutions are stored in another order."""
    sites = [image_rows(7, seed=0), image_rows(5, seed=1)]
    federation = Simulation(small_cnn(), brier_loss, sites)
    method = GroupSCAFFPD(0.3, 0.5, epochs=3, batch_size=None)
    shares = federation.census.group_shares
    theta = start_vector(small_cnn())
    for done in train(federation, method, rounds=3):
        weights = [(done.weights / shares)[group] for _, _, group in sites]
        full = [mean_gradient(theta, *own) for own in zip(sites, weights, strict=True)]
        c = (7 * full[0] + 5 * full[1]) / 12
        ends = []
        for rows, own, at_start in zip(sites, weights, full, strict=True):
            u = theta
            for _ in range(3):
                u = u - 0.3 * (mean_gradient(u, rows, own) - at_start + c)
            ends.append(u)
        theta = (7 * ends[0] + 5 * ends[1]) / 12
        torch.testing.assert_close(done.parameters(), theta, rtol=0, atol=1e-12)


def test_settings_that_make_no_sense_are_refused() -> None:
    assert "learning_rate = 0" in complaint_of(lambda: GroupSCAFFPD(0.0))
    message = complaint_of(lambda: GroupSCAFFPD(extrapolation=-1.0))
    assert "extrapolation = -1; give zero or a positive number" in message
    assert "adversary_rate = -1" in complaint_of(lambda: GroupSCAFFPD(adversary_rate=-1.0))
    assert "epochs = 0" in complaint_of(lambda: GroupSCAFFPD(epochs=0))
    crowded = GroupSCAFFPD(min_weight=0.4)
    message = complaint_of(lambda: initial_progress(PROBLEM.federation(), crowded))
    assert "group SCAFF-PD: min_weight = 0.4 with 3 groups" in message
