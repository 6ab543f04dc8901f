"""AFLFast: Lemma 1's games by hand, and FedMinMaxFast where every site is a group.

Limits of curvature sums: no table exceeds them, and one row of the worst kind attains them.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedminmax.core.bounds import RowLengths, row_limits
from fedminmax.core.examples import Examples
from fedminmax.core.linear_structure import LinearStructure
from fedminmax.core.losses import (
    LOSSES_BY_NAME,
    Loss,
    brier_loss,
    cross_entropy_loss,
    squared_error_loss,
)
from fedminmax.core.messages import zero_sums
from fedminmax.core.one_step import linear_group_sums
from fedminmax.methods.afl import AFL
from fedminmax.methods.look_ahead import AFLFast, FedMinMaxFast
from fedminmax.methods.shared.expected_reply import (
    ReportedCurvature,
    Sender,
    curvature_limits,
    layout_of,
)
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import train
from tests.methods.look_ahead_problems import by_group, classes, network
from tests.oracles import lowest_maximum
from tests.problems import Vector

Rows = tuple[Tensor, Tensor, Tensor]


def site(zeros: int, ones: int) -> Rows:
    group = torch.tensor([0] * zeros + [1] * ones)
    return torch.ones(len(group), 1).double(), group.double(), group


@pytest.mark.filterwarnings("ignore:site 1 has no rows")
@pytest.mark.parametrize("method", [AFLFast(), AFLFast(curvature=False)])
@pytest.mark.parametrize(
    ("ones", "theta", "weights"),
    [((1, 4), 0.4, [0.0, 1.0]), ((1, 7), 0.5, [1 / 3, 2 / 3])],
)
def test_lemma_1_by_hand(
    ones: tuple[int, int], theta: float, weights: list[float], method: AFLFast
) -> None:
    """r_k = (1 - q_k) theta^2 + q_k (theta - 1)^2 with q_k the share of ones.

    With q = 0.1, 0.4 site 1 is worst at its own minimum, 0.4; with 0.1, 0.7 both are equal at
    theta = 0.5, where sum lambda_k q_k = 0.5. A third site has no rows, and no weight.
    """
    first, second = ones
    nobody = tuple(part[:0] for part in site(1, 1))
    sites = [site(10 - first, first), nobody, site(10 - second, second)]
    federation = Simulation(nn.Linear(1, 1, bias=False).double(), squared_error_loss, sites)
    *_, last = train(federation, method, rounds=2 if method.curvature else 150)
    assert float(last.members) == pytest.approx(theta, abs=1e-8 if method.curvature else 1e-7)
    expected = [weights[0], 0.0, weights[1]]
    assert last.weights.tolist() == pytest.approx(expected, abs=1e-6 if method.curvature else 1e-2)


@pytest.mark.parametrize("model", [nn.Linear(3, 2).double(), network(0)])
def test_sites_that_are_groups_are_played_for_as_groups(model: nn.Module) -> None:
    rows = classes(3, 3, 3, 2)
    federation = Simulation(model, brier_loss, by_group(rows))
    *_, over_sites = train(federation, AFLFast(optimality_gap=0.0), rounds=8)
    *_, over_groups = train(federation, FedMinMaxFast(optimality_gap=0.0), rounds=8)
    torch.testing.assert_close(over_sites.members, over_groups.members, atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(over_sites.weights, over_groups.weights, atol=1e-7, rtol=0.0)


def test_the_objective_is_that_of_afl() -> None:
    """Sites of mixed groups: AFL, run long, comes down to the worst site's risk of AFLFast.

    Its average model, and so its worst site's risk, tends to the minimum from above.
    """
    torch.manual_seed(0)
    sites = []
    for number, zeros in enumerate((30, 18, 6)):
        x, group = torch.randn(36, 2).double(), torch.tensor([0] * zeros + [1] * (36 - zeros))
        y = (x[:, 0] + (number - group) * x[:, 1] + 0.5 * torch.randn(36).double() > 0).long()
        sites.append((x, y, group))
    federation = Simulation(nn.Linear(2, 2).double(), brier_loss, sites)

    def worst_site(parameters: Tensor) -> float:
        model = federation.model(parameters)
        with torch.no_grad():
            return max(float(brier_loss(model(x), y).mean()) for x, y, _ in sites)

    *_, fast = train(federation, AFLFast(optimality_gap=0.0), rounds=30)
    *_, slow = train(federation, AFL(learning_rate=1.0, adversary_rate=0.1), rounds=1500)
    lowest = worst_site(fast.members[0])
    over_groups = list(train(federation, FedMinMaxFast(optimality_gap=0.0), rounds=30))[-1]
    assert -1e-9 < worst_site(slow.parameters()) - lowest < 1e-3
    assert worst_site(over_groups.members[0]) > lowest + 3e-3


@pytest.mark.parametrize(("loss", "outputs"), [(cross_entropy_loss, 2), (squared_error_loss, 1)])
def test_bounds_of_the_worst_site_enclose_what_another_solver_finds(
    loss: Loss, outputs: int
) -> None:
    """Four sites of unlike sizes and mixed groups; the optimum over sites is SLSQP's."""
    ridge, rng = 0.02, np.random.default_rng(1)
    sites: list[Rows] = []
    for number, rows in enumerate((40, 25, 12, 60)):
        x = torch.from_numpy(rng.normal(size=(rows, 2)) * (1 + number))
        noisy = x[:, 0] + (number - 1) * x[:, 1] + torch.from_numpy(rng.normal(size=rows))
        y = (noisy > 0).long() if outputs == 2 else noisy
        sites.append((x, y, torch.from_numpy(rng.integers(0, 2, rows))))
    model = nn.Linear(2, outputs).double()
    federation = Simulation(model, loss, sites, ridge=ridge)

    def risks(theta: Vector) -> tuple[Vector, Vector]:
        point = torch.from_numpy(np.array(theta)).requires_grad_()
        weight, bias = point[: 2 * outputs].reshape(outputs, 2), point[2 * outputs :]
        values = [
            loss(nn.functional.linear(x, weight, bias), y).mean() + 0.5 * ridge * point @ point
            for x, y, _ in sites
        ]
        slopes = [torch.autograd.grad(value, point, retain_graph=True)[0] for value in values]
        return torch.stack(values).detach().numpy(), torch.stack(slopes).numpy()

    best = lowest_maximum(risks, np.zeros(3 * outputs))
    *_, last = train(federation, AFLFast(optimality_gap=1e-7), rounds=30)
    proved = last.certificate
    assert proved is not None
    assert (proved.players, last.number < 30) == ("site", True)
    assert proved.lower <= best * (1 + 1e-9)
    assert best <= proved.upper * (1 + 1e-9)
    assert proved.gap <= 1e-7
    assert proved.upper == pytest.approx(risks(last.members[0].numpy())[0].max(), rel=1e-9)
    # Minimax over groups is another question, with another answer.
    *_, groups = train(federation, FedMinMaxFast(optimality_gap=1e-7), rounds=30)
    assert groups.certificate is not None
    assert abs(groups.certificate.upper - best) > 0.01 * best
    *_, partial = train(federation, AFLFast(optimality_gap=1e-7), rounds=3, participation=0.5)
    assert partial.certificate is None


FEATURES = 3


def told_of(
    loss: str, outputs: int, x: Tensor, theta: Tensor
) -> tuple[Tensor, Tensor, ReportedCurvature]:
    """Return an honest site's curvature sums, their limits and the told matrices."""
    group = torch.arange(len(x)) % 2
    y = torch.zeros(len(x), dtype=torch.float64 if loss == "squared_error" else torch.int64)
    structure = LinearStructure(outputs, FEATURES, intercept=True, loss=loss)
    sums = linear_group_sums(structure, theta, Examples(x, y, group), 2).curvature.flatten()
    limits = row_limits([nn.Linear(FEATURES, outputs)], theta, LOSSES_BY_NAME[loss])
    length = math.sqrt(float(x.square().sum()) + len(x))
    sender = Sender(
        0, torch.bincount(group, minlength=2), sites=1, limits=limits, lengths=RowLengths(length)
    )
    reply = replace(zero_sums(0, 2, 0), statistics=sums)
    layout = layout_of(len(theta), sender)
    assert layout is not None
    return sums, *curvature_limits(layout, sender, reply)


@pytest.mark.parametrize(
    ("loss", "outputs"),
    [("brier", 2), ("brier", 4), ("cross_entropy", 2), ("cross_entropy", 4), ("squared_error", 1)],
)
def test_no_table_has_curvature_above_the_limits(loss: str, outputs: int) -> None:
    for seed, spread in enumerate((0.0, 0.3, 3.0, 30.0)):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(5, FEATURES, generator=generator).double() * 10.0**seed
        theta = spread * torch.randn(outputs * (FEATURES + 1), generator=generator).double()
        sums, most, told = told_of(loss, outputs, x, theta)
        assert bool((sums.abs() <= most).all())
        traces = told.matrices.diagonal(dim1=1, dim2=2).sum()
        assert float(traces) <= told.max_trace * (1 + 1e-12)
        assert float(torch.linalg.eigvalsh(told.matrices).min()) >= -1e-14 * told.max_trace


@pytest.mark.parametrize(("loss", "outputs"), [("cross_entropy", 2), ("squared_error", 1)])
def test_a_row_that_is_undecided_attains_the_trace(loss: str, outputs: int) -> None:
    """At theta = 0 both classes have 1/2: diag(p) - p p' has trace 1/2, and (o - y)'' is 2."""
    x = torch.tensor([[1.0, -2.0, 3.0]], dtype=torch.float64)
    theta = torch.zeros(outputs * (FEATURES + 1), dtype=torch.float64)
    _, _, told = told_of(loss, outputs, x, theta)
    expected = (0.5 if outputs == 2 else 2.0) * (1 + 4 + 9 + 1)
    assert float(told.matrices.diagonal(dim1=1, dim2=2).sum()) == pytest.approx(expected)
    assert told.max_trace == pytest.approx(expected)
