"""TERM (Li et al. 2021): its variational form, its limits, its fixed points."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import optimize

from fedminmax.core.iterates import Iterate
from fedminmax.core.losses import brier_loss, cross_entropy_loss
from fedminmax.core.solvers.simplex import tilted_mean, tilted_weights
from fedminmax.data.partition import Setting, partition_by_setting
from fedminmax.data.synthetic import draw_synthetic, expected_risks, optimal_risks
from fedminmax.methods.fedavg import FedAvg
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.methods.method import AnyMethod
from fedminmax.methods.term import TERM, GroupTERM
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import train
from tests.problems import (
    Point,
    half_squared_distance,
    points,
    quadratic_federation,
    softmax_problem,
)

PROBLEM = softmax_problem([[4, 0, 2], [1, 5, 0], [0, 0, 3]], seed=1)

shares_and_risks = st.integers(1, 5).flatmap(
    lambda size: st.tuples(
        st.lists(st.floats(0.05, 1.0), min_size=size, max_size=size),
        st.lists(st.floats(0.0, 3.0), min_size=size, max_size=size),
    )
)


def as_shares(values: list[float]) -> torch.Tensor:
    vector = torch.tensor(values, dtype=torch.float64)
    return vector / vector.sum()


@given(shares_and_risks, st.floats(0.01, 50.0))
def test_the_tilted_mean_is_a_penalised_maximum(
    both: tuple[list[float], list[float]], tilt: float
) -> None:
    """J = max over mu of <mu, r> - KL(mu || rho) / t, reached at the tilted weights."""
    rho, risks = as_shares(both[0]), torch.tensor(both[1], dtype=torch.float64)
    mu = tilted_weights(rho, risks, tilt)
    divergence = torch.special.xlogy(mu, mu / rho).sum()
    value = float(torch.dot(mu, risks) - divergence / tilt)
    mean = float(tilted_mean(rho, risks, tilt))
    assert mean == pytest.approx(value, abs=1e-9)
    lowest = float(risks.max()) - np.log(1 / float(rho.min())) / tilt
    assert lowest - 1e-9 <= mean <= float(risks.max()) + 1e-9


def test_no_tilt_is_fedavg_and_plain_risk_minimisation() -> None:
    fedavg = FedAvg(0.3, epochs=3, batch_size=None)
    term = TERM(0.0, learning_rate=0.3, epochs=3, batch_size=None)
    plain = FedMinMax(0.3, adversary_rate=0.0)
    group = GroupTERM(0.0, learning_rate=0.3)
    pairs: list[tuple[AnyMethod[Any], AnyMethod[Any]]] = [(term, fedavg), (group, plain)]
    for one, other in pairs:
        torch.testing.assert_close(last(one), last(other), rtol=1e-10, atol=1e-12)


def last(method: AnyMethod[Any]) -> torch.Tensor:
    """The parameters after some rounds."""
    return list(train(PROBLEM.federation(), method, rounds=15))[-1].parameters(Iterate.LAST)


@pytest.mark.parametrize(("tilt", "group_tilt"), [(0.1, 0.0), (2.0, 0.0), (1.5, 4.0), (3.0, 3.0)])
def test_one_full_step_descends_the_tilted_objective(tilt: float, group_tilt: float) -> None:
    """theta - eta grad J, with the gradient by autograd through the formula."""
    method = TERM(tilt, group_tilt, learning_rate=0.3, epochs=1, batch_size=None)
    theta = torch.from_numpy(PROBLEM.start).clone()
    for done in train(PROBLEM.federation(), method, rounds=5):
        leaf = theta.clone().requires_grad_()
        model = PROBLEM.model()
        pieces = torch.split(leaf, [p.numel() for p in model.parameters()])
        gradient = torch.autograd.grad(_objective_at(pieces, tilt, group_tilt), leaf)[0]
        theta = theta - 0.3 * gradient
        torch.testing.assert_close(done.parameters(), theta, rtol=1e-9, atol=1e-11)


def _objective_at(pieces: tuple[torch.Tensor, ...], tilt: float, group_tilt: float) -> torch.Tensor:
    weight, bias = pieces[0].view(3, 2), pieces[1]
    total = torch.zeros((), dtype=torch.float64)
    rows = sum(len(y) for _, y, _ in PROBLEM.sites)
    for x, y, group in PROBLEM.sites:
        p = torch.softmax(x @ weight.T + bias, dim=1)
        losses = ((p - torch.eye(3, dtype=torch.float64)[y]) ** 2).sum(dim=1)
        inner = losses.mean()
        if group_tilt:
            parts = [
                (group == a).double().mean() * torch.exp(group_tilt * losses[group == a].mean())
                for a in range(3)
                if bool((group == a).any())
            ]
            inner = torch.log(torch.stack(parts).sum()) / group_tilt
        total = total + len(y) / rows * torch.exp(tilt * inner)
    return torch.log(total) / tilt


def test_equal_tilts_collapse_to_one_level_over_cells() -> None:
    """With tau = t the two levels are one tilted mean over (site, group) cells."""
    theta = torch.from_numpy(PROBLEM.start)
    weight, bias = theta[:6].view(3, 2), theta[6:]
    cells, shares = [], []
    for x, y, group in PROBLEM.sites:
        p = torch.softmax(x @ weight.T + bias, dim=1)
        own = ((p - torch.eye(3, dtype=torch.float64)[y]) ** 2).sum(dim=1)
        for a in range(3):
            if bool((group == a).any()):
                cells.append(own[group == a].mean())
                shares.append(float((group == a).sum()))
    expected = tilted_mean(as_shares(shares), torch.stack(cells), 3.0)
    assert float(_objective_at((theta[:6], bias), 3.0, 3.0)) == pytest.approx(float(expected))


@pytest.mark.parametrize("precision", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("tilt", [1.0, 1e6])
def test_losses_in_the_thousands_leave_only_the_worst_site(
    tilt: float, precision: torch.dtype
) -> None:
    """At theta = 0 the losses are 1250, 3200 and 5000: exp of their differences is 0 in float64.

    So every step is the third site's alone, a tenth of the way to 100: theta^t = 100 (1 - 0.9^t),
    as long as it stays the worst.
    """
    sites = [points([[[target]]]) for target in (50.0, 80.0, 100.0)]
    federation = Simulation(Point([0.0]).to(precision), half_squared_distance, sites)
    method = TERM(tilt, learning_rate=0.1, epochs=1, batch_size=None)
    for done in train(federation, method, rounds=3):
        expected = 100.0 * (1.0 - 0.9**done.number)
        assert float(done.parameters()) == pytest.approx(expected, rel=1e-6)


def test_equal_losses_in_the_thousands_share_by_rows() -> None:
    """Two sites with losses of 5000, one of 1 row at -100, one of 3 at 100: 3/4 - 1/4 of 10."""
    sites = [points([[[-100.0]]]), points([[[100.0]] * 3]), points([[[1.0]]])]
    federation = quadratic_federation([0.0], sites)
    method = TERM(1.0, learning_rate=0.1, epochs=1, batch_size=None)
    (done,) = train(federation, method, rounds=1)
    assert float(done.parameters()) == pytest.approx(5.0, rel=1e-12)


def test_who_takes_part_shares_all_the_weight() -> None:
    """With one of two sites in each round, the step is that site's own."""
    federation = quadratic_federation([0.0], [points([[[50.0]]]), points([[[100.0]]])])
    method = TERM(1.0, learning_rate=0.1, epochs=1, batch_size=None)
    theta = 0.0
    for done in train(federation, method, rounds=6, participation=0.5):
        theta += 0.1 * ((50.0, 100.0)[done.participants[0]] - theta)
        assert float(done.parameters()) == pytest.approx(theta, rel=1e-12)


TILTS = [(1.0, (0.4748, 0.2212)), (5.0, (0.4589, 0.2510)), (20.0, (0.4503, 0.2984))]
# One each: sums by group are the same in all settings.
SETTINGS = (Setting.ESG, Setting.SSG, Setting.ESG)


@pytest.mark.parametrize(("tilt", "expected"), TILTS)
def test_the_synthetic_optimum_of_group_term(tilt: float, expected: tuple[float, float]) -> None:
    """The mixture weight m solves the fixed point m / (1 - m) = exp(t (r_1 - r_0))."""

    def excess(m: float) -> float:
        risks = optimal_risks(m)
        return float(np.log(m / (1 - m)) - tilt * (risks.group_1 - risks.group_0))

    risks = optimal_risks(float(optimize.brentq(excess, 1e-12, 0.5)))
    assert (risks.group_0, risks.group_1) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("tilt", "expected", "setting"),
    [(*case, setting) for case, setting in zip(TILTS, SETTINGS, strict=True)],
)
def test_group_term_reaches_its_synthetic_optimum_in_any_setting(
    tilt: float, expected: tuple[float, float], setting: Setting
) -> None:
    """On 40,000 rows with a linear model of the two sides, up to the noise of the rows."""
    rows = draw_synthetic(40_000, seed=3)
    model = torch.nn.Linear(2, 2)
    torch.nn.init.zeros_(model.weight)
    parts = partition_by_setting(setting, rows.group, 8, seed=0)
    sites = [(sides(rows.x[p]), rows.y[p], rows.group[p]) for p in parts]
    federation = Simulation(model, brier_loss, sites)
    done = list(train(federation, GroupTERM(tilt, learning_rate=1.0), rounds=200))[-1]
    trained = federation.model(done.parameters())
    risks = expected_risks(torch.nn.Sequential(Sides(), trained))
    assert (risks.group_0, risks.group_1) == pytest.approx(expected, abs=0.006)


@pytest.mark.parametrize("tilt", [1.0, 5.0, 50.0])
def test_group_term_arrives_with_the_rate_that_users_get(tilt: float) -> None:
    """J of the last model, without a given rate, is the minimum that scipy finds.

    The groups follow opposite patterns, so that J curves far more than any group's risk: at the
    same rate, steps that are not shortened end 0.19 above the minimum with a tilt of 50. With 1
    and 5 they arrive here, too.
    """
    x, y, group = opposite_patterns()
    sites = [(x[k::3], y[k::3], group[k::3]) for k in range(3)]
    model = torch.nn.Linear(4, 2).double()
    federation = Simulation(model, cross_entropy_loss, sites)
    *_, done = train(federation, GroupTERM(tilt), rounds=400)

    def objective(theta: torch.Tensor) -> torch.Tensor:
        losses = cross_entropy_loss(x @ theta[:8].view(2, 4).T + theta[8:], y)
        means = torch.stack([losses[group == a].mean() for a in (0, 1)])
        shares = torch.bincount(group).double() / len(group)
        return torch.log((shares * torch.exp(tilt * means)).sum()) / tilt

    def with_slope(values: NDArray[np.float64]) -> tuple[float, Any]:
        theta = torch.from_numpy(values).clone().requires_grad_()
        value = objective(theta)
        return float(value.detach()), torch.autograd.grad(value, theta)[0].numpy()

    lowest = optimize.minimize(
        with_slope, np.zeros(10), jac=True, method="BFGS", options={"gtol": 1e-9}
    )
    assert float(objective(done.parameters(Iterate.LAST))) == pytest.approx(lowest.fun, abs=1e-6)


def test_with_a_ridge_the_objective_is_the_penalised_one() -> None:
    """From far away, J without its penalty rises although every step lowers what is minimised."""
    x, y, group = opposite_patterns()
    answers = []
    for start in (0.0, 3.0):
        model = torch.nn.Linear(4, 2).double()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.linspace(-start, start, parameter.numel()).view_as(parameter))
        federation = Simulation(model, cross_entropy_loss, [(x, y, group)], ridge=0.3)
        *_, done = train(federation, GroupTERM(5.0), rounds=200)
        answers.append(done.parameters(Iterate.LAST))
    torch.testing.assert_close(answers[0], answers[1], atol=1e-6, rtol=0.0)


def opposite_patterns() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Draw 600 rows; in a fifth of them, group 1, the second feature decides and not the first."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(600, 4, generator=generator, dtype=torch.float64)
    group = (torch.rand(600, generator=generator) < 0.2).long()
    decides = torch.where(group == 1, x[:, 1], x[:, 0])
    y = (decides + 0.5 * torch.randn(600, generator=generator) > 0).long()
    return x, y, group


def test_only_a_rise_of_the_objective_shortens_steps() -> None:
    """One row per group, at -1 and 1, from 0: J falls from the start with a small rate."""
    sites = [points([[[-1.0]] * 3, [[1.0]]])]
    for rate, shortened in ((0.1, False), (2.5, True)):
        federation = quadratic_federation([5.0], sites)
        rounds = train(federation, GroupTERM(2.0, learning_rate=rate), rounds=8)
        factors = [done.progress.state.step_factor for done in rounds]
        assert (min(factors) < 1.0) == shortened


def test_rounds_of_some_rows_do_not_shorten_steps() -> None:
    """J on the rows of one site says nothing of J on those of the next one."""
    federation = quadratic_federation([0.0], [points([[[50.0]]]), points([[[100.0]]])])
    method = GroupTERM(2.0, learning_rate=0.1)
    for done in train(federation, method, rounds=12, participation=0.5):
        assert done.progress.state.step_factor == 1.0


def sides(x: torch.Tensor) -> torch.Tensor:
    """On which side of 0 a number lies."""
    return torch.cat([x <= 0, x > 0], dim=1).float()


class Sides(torch.nn.Module):
    """The same as a layer."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return sides(x)
