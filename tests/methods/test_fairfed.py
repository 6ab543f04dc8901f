"""FairFed (Ezzeldin et al. 2023): omega by hand, its fallback, its limits."""

import numpy as np
import pytest
import torch
from torch import nn

from fedminmax.core.losses import brier_loss
from fedminmax.core.parity import Parity
from fedminmax.methods.fairfed import FairFed
from fedminmax.methods.fedavg import FedAvg
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import train
from tests.oracles import brier_gradient, project_by_bisection
from tests.parity_problems import Labels, answers, pooled_rows, rates
from tests.problems import Problem, Rows, Vector, softmax_problem, to_numpy

TWO_GROUPS = softmax_problem([[14, 9], [5, 12], [8, 0]], seed=3, classes=2)
THREE_GROUPS = softmax_problem([[9, 5, 7], [4, 8, 0], [0, 0, 9]], seed=5, classes=2)


@pytest.mark.parametrize("batch_size", [None, 4])
def test_no_budget_is_fedavg(batch_size: int | None) -> None:
    """The same shuffles too: training draws what FedAvg's draws."""
    method = FairFed(0.0, learning_rate=0.3, epochs=2, batch_size=batch_size)
    fedavg = FedAvg(0.3, epochs=2, batch_size=batch_size)
    both = zip(
        train(THREE_GROUPS.federation(), method, rounds=10, participation=0.6),
        train(THREE_GROUPS.federation(), fedavg, rounds=10, participation=0.6),
        strict=True,
    )
    for one, other in both:
        torch.testing.assert_close(one.parameters(), other.parameters(), rtol=0, atol=1e-12)
        assert one.progress.gradient_evaluations == other.progress.gradient_evaluations


def signs(rows: list[tuple[int, int, int]]) -> Rows:
    """Rows (x, y, group) for a model that answers 1 where x > 0."""
    x, y, group = zip(*rows, strict=True)
    return torch.tensor(x).double().unsqueeze(1), torch.tensor(y), torch.tensor(group)


def omega_after_one_round(sites: list[Rows], method: FairFed) -> torch.Tensor:
    model = nn.Linear(1, 2, dtype=torch.float64)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[-1.0], [1.0]]))
        model.bias.zero_()
    federation = Simulation(model, brier_loss, sites)
    return next(train(federation, method, rounds=1)).weights


UNEQUAL = [
    signs([(1, 1, 0), (-1, 1, 0), (-1, 1, 1), (-1, 0, 1)]),
    signs([(-1, 1, 0), (-1, 0, 0), (1, 1, 1), (-1, 0, 1)]),
    signs([(1, 1, 1), (1, 0, 1)]),
]


def test_omega_by_hand_under_demographic_parity() -> None:
    """F = 1/4 - 3/6, F_k = 1/2, -1/2 and none; Acc = 6/10, Acc_2 = 1/2: Delta = .75, .25, .1."""
    omega = omega_after_one_round(UNEQUAL, FairFed(0.3, epochs=1, batch_size=None))
    assert omega.tolist() == pytest.approx([0.285, 0.435, 0.28], abs=1e-12)


def test_omega_by_hand_under_equal_opportunity() -> None:
    """F = 1/3 - 2/3, F_k = 1/2 - 0, 0 - 1 and none: Delta = 5/6, 2/3, .1."""
    method = FairFed(0.3, Parity.OPPORTUNITY, epochs=1, batch_size=None)
    omega = omega_after_one_round(UNEQUAL, method)
    assert omega.tolist() == pytest.approx([0.31, 0.36, 0.33], abs=1e-12)


def test_sites_of_one_group_are_compared_by_accuracy() -> None:
    """Accuracies 1, 0, 1/2 and 3/5 over all: Delta = .4, .6, .1 with mean 1.1 / 3."""
    sites = [
        signs([(1, 1, 0), (-1, 0, 0)]),
        signs([(1, 0, 1)]),
        signs([(1, 1, 1), (1, 0, 1)]),
    ]
    omega = omega_after_one_round(sites, FairFed(0.5, epochs=1, batch_size=None))
    mean = 1.1 / 3
    expected = [0.4 - 0.5 * (0.4 - mean), 0.2 - 0.5 * (0.6 - mean), 0.4 - 0.5 * (0.1 - mean)]
    assert omega.tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("parity", list(Parity))
@pytest.mark.parametrize("problem", [TWO_GROUPS, THREE_GROUPS], ids=["two", "three"])
def test_the_loop_by_hand(parity: Parity, problem: Problem) -> None:
    method = FairFed(0.2, parity, learning_rate=0.3, epochs=3, batch_size=None)
    expected = fairfed_by_hand(problem, parity, rounds=12, eta=0.3, beta=0.2, epochs=3)
    for done, (theta, omega) in zip(
        train(problem.federation(), method, rounds=12), expected, strict=True
    ):
        np.testing.assert_allclose(to_numpy(done.weights), omega, atol=1e-10)
        np.testing.assert_allclose(to_numpy(done.parameters()), theta, atol=1e-10)
    assert np.abs(expected[-1][1] - expected[0][1]).max() > 0.05


def fairfed_by_hand(
    problem: Problem, parity: Parity, *, rounds: int, eta: float, beta: float, epochs: int
) -> list[tuple[Vector, Vector]]:
    """Metrics of theta^{t-1} move omega, which then averages the models of the same round."""
    rows = problem.numpy_rows()
    n = np.array([len(y) for _, y, _ in rows])
    theta, omega = problem.start, n / n.sum()
    trace = []
    for _ in range(rounds):
        overall, accuracy = metrics(problem, parity, theta, *pooled_rows(problem))
        delta = np.zeros(len(rows))
        models = []
        for k, (x, y, group) in enumerate(rows):
            own_gap, own_accuracy = metrics(problem, parity, theta, x, y, group)
            undefined = np.isnan(own_gap)
            delta[k] = abs(own_accuracy - accuracy) if undefined else abs(own_gap - overall)
            own = theta
            for _ in range(epochs):
                own = own - eta * brier_gradient(problem, own, x, y, np.full(len(y), 1 / len(y)))
            models.append(own)
        omega = project_by_bisection(omega - beta * (delta - delta.mean()))
        theta = np.sum([w * own for w, own in zip(omega, models, strict=True)], axis=0)
        trace.append((theta, omega))
    return trace


def metrics(
    problem: Problem, parity: Parity, theta: Vector, x: Vector, y: Labels, group: Labels
) -> tuple[float, float]:
    """F (NaN if undefined) and accuracy."""
    given = answers(problem, theta, x)
    by_group = rates(parity, given, y, group, problem.groups)
    known = by_group[~np.isnan(by_group)]
    right = float((given == y).mean())
    if len(known) < 2:
        return float("nan"), right
    two = problem.groups == 2
    return float(by_group[0] - by_group[1] if two else known.max() - known.min()), right


def test_a_large_budget_stays_on_the_simplex() -> None:
    method = FairFed(50.0, learning_rate=0.3, epochs=1, batch_size=None)
    zeros = 0
    for done in train(THREE_GROUPS.federation(), method, rounds=15, participation=0.6):
        assert float(done.weights.min()) >= 0.0
        assert abs(float(done.weights.sum()) - 1.0) < 1e-12
        zeros += int((done.weights == 0.0).sum())
    assert zeros > 0
