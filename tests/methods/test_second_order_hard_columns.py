"""The fast server without a ridge on columns that leave it flat directions, against SLSQP.

Indicators of groups: a group of weight 0 leaves its column without curvature. Columns far from 0:
the model hardly changes if a weight and the intercept move against each other.
"""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from fedminmax.core.losses import Loss, brier_loss, cross_entropy_loss, squared_error_loss
from fedminmax.methods.look_ahead import FedAvgFast, FedMinMaxFast
from fedminmax.methods.method import AnyMethod
from fedminmax.methods.shared.second_order_state import SecondOrderState
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import Round, train
from tests.oracles import lowest_maximum
from tests.problems import Vector

Numbers = NDArray[np.int64]
Table = tuple[Vector, Vector, Numbers]


def sex_by_race(seed: int, columns: str, races: int = 5, rows: int = 1500) -> Table:
    """Targets with another slope, level and noise in every group of sex x race."""
    rng = np.random.default_rng(seed)
    shares = 0.9 * rng.dirichlet(np.ones(races)) + 0.1 / races
    sex, race = rng.integers(0, 2, rows), rng.choice(races, rows, p=shares)
    group = np.unique(sex * races + race, return_inverse=True)[1]
    groups = group.max() + 1
    x = rng.normal(size=(rows, 3))
    slopes = rng.normal(size=3) + 0.5 * rng.normal(size=(groups, 3))
    noise = rng.normal(size=rows) * rng.uniform(0.3, 2.0, groups)[group]
    y = (x * slopes[group]).sum(axis=1) + rng.normal(size=groups)[group] + noise
    own = np.eye(groups)[group]
    both = np.c_[np.eye(2)[sex], np.eye(races)[race]]
    indicators = {"groups": own, "sex and race": both, "all of them": np.c_[both, own]}[columns]
    return np.c_[x, indicators], y, group


def lowest_by_scipy(table: Table) -> float:
    """The lowest worst squared error, in an orthonormal basis of the columns."""
    x, y, group = table
    left, sizes, _ = np.linalg.svd(np.c_[x, np.ones(len(x))], full_matrices=False)
    basis = left[:, sizes > 1e-10 * sizes[0]] * np.sqrt(len(x))
    own = [group == number for number in range(group.max() + 1)]
    bends = np.array([2.0 * basis[rows].T @ basis[rows] / rows.sum() for rows in own])
    slopes = np.array([-2.0 * basis[rows].T @ y[rows] / rows.sum() for rows in own])
    heights = np.array([(y[rows] ** 2).mean() for rows in own])

    def at(step: Vector) -> tuple[Vector, Vector]:
        bent = bends @ step
        return heights + slopes @ step + 0.5 * bent @ step, slopes + bent

    return lowest_maximum(at, np.linalg.solve(bends.mean(axis=0), -slopes.mean(axis=0)))


def fitted(
    table: Table, loss: Loss, outputs: int, method: AnyMethod[Any], *, random: bool = False
) -> tuple[float, Round[Any]]:
    """Return the objective of a run's answer on the table's own rows, and its last round."""
    x, y, group = (torch.from_numpy(part) for part in table)
    torch.manual_seed(0)
    model = nn.Linear(x.shape[1], outputs).double()
    if not random:
        nn.init.zeros_(model.weight)
        nn.init.zeros_(model.bias)
    federation = Simulation(model, loss, [(x, y, group)])
    *_, last = train(federation, method, rounds=50)
    with torch.no_grad():
        losses = loss(federation.model(last.members[0])(x), y)
    means = [float(losses[group == number].mean()) for number in range(int(group.max()) + 1)]
    return (max(means) if isinstance(method, FedMinMaxFast) else float(losses.mean())), last


@pytest.mark.parametrize("columns", ["groups", "sex and race", "all of them"])
def test_indicators_of_groups_do_not_stop_it_early(columns: str) -> None:
    """Forty tables, none above the optimum by more than a millionth."""
    above = []
    for seed in range(40):
        table = sex_by_race(seed, columns)
        worst, last = fitted(table, squared_error_loss, 1, FedMinMaxFast())
        above.append(worst / lowest_by_scipy(table) - 1.0)
        assert last.remaining is not None
        assert above[-1] <= 10.0 * last.remaining + 1e-7
    assert max(above) <= 1e-6


@pytest.mark.parametrize("columns", ["groups", "sex and race"])
def test_forty_groups_with_indicators(columns: str) -> None:
    for seed in range(5):
        table = sex_by_race(seed, columns, races=20, rows=3000)
        worst, _ = fitted(table, squared_error_loss, 1, FedMinMaxFast())
        assert worst <= lowest_by_scipy(table) * (1.0 + 1e-6)


def labels(seed: int) -> Table:
    """Three groups with patterns of their own."""
    rng = np.random.default_rng(seed)
    group = np.r_[np.repeat(np.arange(3), 30), rng.integers(0, 3, 400)]
    x = rng.normal(size=(len(group), 3))
    patterns = 1.5 * rng.normal(size=3) + 0.7 * rng.normal(size=(3, 3))
    noise = 0.7 * rng.logistic(size=len(group))
    return x, ((x * patterns[group]).sum(axis=1) + noise > 0).astype(np.int64), group


@pytest.mark.parametrize("random", [False, True], ids=["from zeros", "from a random start"])
@pytest.mark.parametrize("method", [FedMinMaxFast(), FedAvgFast()], ids=lambda own: own.name)
@pytest.mark.parametrize("loss", [brier_loss, cross_entropy_loss])
def test_columns_far_from_0_give_the_same_answer(
    loss: Loss, method: AnyMethod[Any], *, random: bool
) -> None:
    """A model with an intercept does not care where a column has its mean."""
    for seed in range(2):
        x, y, group = labels(seed)
        best, first = fitted((x, y, group), loss, 2, method)
        for shift in (1e4, 1e6):
            found, last = fitted((x + shift, y, group), loss, 2, method, random=random)
            assert found == pytest.approx(best, rel=1e-5)
            assert last.number <= first.number + 3


@pytest.mark.parametrize("shift", [1e4, 1e6])
def test_targets_with_columns_far_from_0(shift: float) -> None:
    for seed in range(5):
        x, y, group = table = sex_by_race(seed, "sex and race")
        x = x.copy()
        best = lowest_by_scipy(table)
        x[:, 0] += shift
        worst, last = fitted((x, y, group), squared_error_loss, 1, FedMinMaxFast())
        assert worst == pytest.approx(best, rel=1e-6)
        assert last.number <= 4


@pytest.mark.parametrize("loss", [brier_loss, cross_entropy_loss])
def test_nearly_equal_columns_are_not_called_done_at_the_start(loss: Loss) -> None:
    """Only the difference of the first two columns says what the second one did."""
    for seed in (1, 3):
        x, y, group = labels(seed)
        best, _ = fitted((x, y, group), loss, 2, FedMinMaxFast())
        near = np.c_[x[:, 0] + 1e-6 * x[:, 1], x[:, 0], x[:, 2]]
        found, last = fitted((near, y, group), loss, 2, FedMinMaxFast())
        assert last.remaining is not None
        assert found / best - 1.0 <= max(last.remaining, 1e-5)


@pytest.mark.parametrize("precision", [torch.float64, torch.float32])
@pytest.mark.parametrize("loss", [cross_entropy_loss, squared_error_loss])
def test_a_proof_that_rounding_limits_does_not_keep_it_running(
    loss: Loss, precision: torch.dtype
) -> None:
    """A column in a large unit and a small ridge: the bound on rounding errors is the whole gap."""
    x, y, group = labels(0)
    x = x * np.array([2.0**17, 1.0, 1.0])
    target = torch.from_numpy(y if loss is cross_entropy_loss else y + x[:, 1])
    target = target.to(precision) if loss is squared_error_loss else target
    model = nn.Linear(3, 1 if loss is squared_error_loss else 2).to(precision)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    rows = (torch.from_numpy(x).to(precision), target, torch.from_numpy(group))
    federation = Simulation(model, loss, [rows], ridge=1e-8)
    *_, last = train(federation, FedMinMaxFast(), rounds=200)
    *_, longest = train(federation, FedMinMaxFast(optimality_gap=0.0), rounds=30)
    assert last.number < 15
    assert last.certificate is not None
    assert last.certificate.gap > 0.01
    assert last.remaining is not None
    assert last.remaining <= 1e-4
    best, found = (done.progress.state for done in (longest, last))
    assert isinstance(best, SecondOrderState)
    assert isinstance(found, SecondOrderState)
    assert found.answer == pytest.approx(best.answer, rel=1e-6)
