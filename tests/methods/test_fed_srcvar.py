"""FedSRCVaR against closed forms, every subset of the records, and an independent solver."""

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import Bounds, NonlinearConstraint, minimize
from torch import Tensor, nn

from fedminmax import Simulation, train
from fedminmax.core.errors import InputError
from fedminmax.core.messages import RoundKey
from fedminmax.losses import cross_entropy_loss, squared_error_loss
from fedminmax.methods import FedSRCVaR
from fedminmax.methods.fed_srcvar import FedSRCVaRState
from fedminmax.training.train import Round
from tests.problems import Problem, softmax_problem

Vector = NDArray[np.float64]


def final_state(federation: Simulation, method: FedSRCVaR, rounds: int = 600) -> FedSRCVaRState:
    """Train and return the last state."""
    last: Round[FedSRCVaRState] | None = None
    for done in train(federation, method, rounds=rounds, seed=0):
        last = done
    assert last is not None
    return last.progress.state


def numbers_as_sites(values: list[float], ridge: float = 1e-6) -> Simulation:
    """Put each number into one of two sites; the model is one constant, fitted by squares."""
    y = torch.tensor(values, dtype=torch.float64)
    sites = [
        (torch.zeros(len(own), 1, dtype=torch.float64), own, torch.zeros(len(own)).long())
        for own in (y[::2], y[1::2])
    ]
    model = nn.Linear(1, 1).double()
    with torch.no_grad():
        model.weight.zero_()
        model.bias.zero_()
    return Simulation(model, squared_error_loss, sites, ridge=ridge)


def constant_of(state: FedSRCVaRState) -> float:
    """Return the fitted constant: the last parameter."""
    return float(state.selected[0, -1])


VALUES = [0.0, 0.3, 0.5, 0.6, 1.0, 4.0]


def test_a_share_of_one_record_is_the_middle_of_the_range() -> None:
    """The largest squared error alone counts, and is least half-way between both ends."""
    method = FedSRCVaR(1 / 6, smoothing=1e-4, optimality_gap=1e-9)
    assert constant_of(final_state(numbers_as_sites(VALUES), method)) == pytest.approx(
        2.0, abs=2e-3
    )


@pytest.mark.parametrize("options", [{"share": 1.0}, {"share": 0.2, "keep_share": 1.0}])
def test_all_records_or_no_tail_is_the_mean_risk(options: dict[str, Any]) -> None:
    """Then the constant is the arithmetic mean."""
    method = FedSRCVaR(**options, optimality_gap=1e-10)
    constant = constant_of(final_state(numbers_as_sites(VALUES), method))
    assert constant == pytest.approx(float(np.mean(VALUES)), abs=1e-4)


def labelled_problem() -> Problem:
    """Return rows whose label follows a feature, from another level on in the rare group."""
    rng = np.random.default_rng(5)
    problem = softmax_problem([[20, 4], [16, 4], [12, 4]], seed=4, classes=2)
    sites = []
    for x, _, group in problem.sites:
        level = x[:, 0].numpy() + 0.5 * group.numpy() + 0.3 * rng.normal(size=len(x))
        y = torch.from_numpy((level > 0).astype(np.int64))
        sites.append((x, y, group))
    return Problem(sites, 0.0 * problem.start, 2, 2, 2)


RIDGE = 1e-2


def penalised(problem: Problem) -> Simulation:
    """Put the rows into a simulation with a ridge."""
    return Simulation(problem.model(), cross_entropy_loss, problem.sites, ridge=RIDGE)


def losses_at(problem: Problem, theta: Vector) -> Vector:
    """Return the cross-entropy of every record, by numpy."""
    losses = []
    for x, y, _ in problem.numpy_rows():
        chances = problem.probabilities(theta, x)
        losses.append(-np.log(chances[np.arange(len(y)), y]))
    return np.concatenate(losses)


def objective(problem: Problem, theta: Vector, share: float, keep_share: float) -> float:
    """Return J by sorting: the mean of the worst share, where one record may count in part."""
    losses = np.sort(losses_at(problem, theta))[::-1]
    size = share * len(losses)
    parts = np.clip(size - np.arange(len(losses)), 0.0, 1.0)
    tail = float(parts @ losses) / size
    mean = float(losses.mean())
    return (1 - keep_share) * tail + keep_share * mean + RIDGE / 2 * float(theta @ theta)


@pytest.mark.parametrize(("share", "keep_share"), [(0.2, 0.3), (0.6, 0.0)])
def test_an_independent_solver_finds_nothing_better(share: float, keep_share: float) -> None:
    """SLSQP solves the epigraph form, with a variable for each record instead of a threshold's sum.

    What is said to be left to gain holds, once the smoothing is allowed for.
    """
    problem = labelled_problem()
    method = FedSRCVaR(share, keep_share=keep_share, smoothing=1e-3, optimality_gap=1e-6)
    state = final_state(penalised(problem), method)
    size, rows = len(problem.start), sum(len(y) for _, y, _ in problem.sites)
    factor = (1 - keep_share) / (share * rows)

    def total(z: Vector) -> float:
        theta, c, u = z[:size], z[size], z[size + 1 :]
        mean = float(losses_at(problem, theta).mean()) if keep_share else 0.0
        return float(
            (1 - keep_share) * c + factor * u.sum() + keep_share * mean + RIDGE / 2 * theta @ theta
        )

    above = NonlinearConstraint(
        lambda z: z[size + 1 :] + z[size] - losses_at(problem, z[:size]), 0.0, np.inf
    )
    found = minimize(
        total,
        np.concatenate([problem.start, [0.7], np.full(rows, 0.1)]),
        method="SLSQP",
        bounds=Bounds(np.array([-np.inf] * (size + 1) + [0.0] * rows)),
        constraints=above,
        options={"maxiter": 500, "ftol": 1e-12},
    )
    optimum = objective(problem, found.x[:size], share, keep_share)
    ours = objective(problem, state.selected[0].numpy(), share, keep_share)
    smoothed = (1 - keep_share) * 1e-3 / (4 * share)
    assert state.remaining is not None
    assert state.remaining <= 1e-6
    assert ours <= state.value <= ours + smoothed
    assert optimum - 1e-7 <= ours <= optimum + state.remaining * state.value + smoothed
    assert ours < objective(problem, problem.start, share, keep_share) - 0.01


def test_what_is_left_is_not_understated_far_below_the_best_threshold() -> None:
    """Twelve records of 100 have the loss 4, whatever the threshold: J is lowest at c = 4."""
    federation = numbers_as_sites([0.0] * 88 + [2.0, -2.0] * 6)
    method = FedSRCVaR(0.1, keep_share=0.9, smoothing=1e-3)
    start = method.init(federation.initial_parameters, federation.census)
    below = replace(start, candidate=torch.tensor([0.0, 0.0, 1.0]).double(), rounds=1)
    total = federation.ask(method, method.order(below, RoundKey(0, 1)), [0, 1]).total
    there = method.update(below, total)
    mean = 0.12 * 4
    assert there.value == pytest.approx(0.1 * (1 + 0.12 * (4 - 1) / 0.1) + 0.9 * mean, abs=1e-3)
    optimum = 0.1 * 4 + 0.9 * mean
    assert there.remaining is not None
    assert there.value * (1 - there.remaining) <= optimum < there.value - 0.05


def test_no_set_of_records_of_that_size_does_worse() -> None:
    """J bounds the mean loss of every subset with at least the share, whatever its members."""
    federation = numbers_as_sites(VALUES)
    state = final_state(federation, FedSRCVaR(0.5, smoothing=1e-4))
    losses = [(value - constant_of(state)) ** 2 for value in VALUES]
    worst = max(float(np.mean(own)) for size in (3, 4, 5, 6) for own in combinations(losses, size))
    assert worst <= state.value
    assert worst == pytest.approx(state.value, rel=1e-3)


def test_rounds_without_some_sites_still_lower_the_tail() -> None:
    """J cannot be compared then, so steps are plain; the tail's mean falls all the same."""
    problem = labelled_problem()
    method, before = FedSRCVaR(0.3), objective(problem, problem.start, 0.3, 0.0)
    federation = penalised(problem)
    last: Tensor | None = None
    for done in train(federation, method, rounds=150, seed=0, participation=0.7):
        last = done.progress.state.parameters
    assert last is not None
    assert objective(problem, last.numpy(), 0.3, 0.0) < before - 0.01


@pytest.mark.parametrize(
    "options", [{"share": 0.0}, {"share": 1.5}, {"keep_share": -0.1}, {"smoothing": 0.0}]
)
def test_senseless_settings_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"FedSRCVaR: .* = .*; give"):
        FedSRCVaR(**options)
