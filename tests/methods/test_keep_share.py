"""What every site keeps of its share as weight: the optimum is that of the penalised objective."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedminmax.core.errors import InputError
from fedminmax.core.losses import cross_entropy_loss
from fedminmax.core.solvers.simplex import FixedShares
from fedminmax.methods.afl import AFL, AFLStart, StochasticAFL
from fedminmax.methods.ap_star import APStar
from fedminmax.methods.drfa import DRFA, GroupDRFA
from fedminmax.methods.fedminmax import FedMinMax, FedMinMaxLocal
from fedminmax.methods.group_scaff_pd import GroupSCAFFPD
from fedminmax.methods.look_ahead import AFLFast
from fedminmax.methods.minimax_fair import MinimaxFair
from fedminmax.methods.oracle_minimax import OracleMinimax
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import Round, fit

KEPT, RIDGE = 0.3, 1e-3
SHARES = np.array([120, 40, 20]) / 180
METHODS = [
    AFL(0.5, 0.2, keep_share=KEPT),
    AFL(0.5, 0.2, keep_share=KEPT, start=AFLStart.UNIFORM),
    pytest.param(
        StochasticAFL(0.5, 0.2, keep_share=KEPT, batch_size=None, draws=40), marks=pytest.mark.slow
    ),
    DRFA(0.5, 0.2, keep_share=KEPT, steps=1, batch_size=None),
]
# Their players are groups; a mixture of fits has the mean risks of its members.
GROUP_METHODS = [
    FedMinMax(0.5, 0.2, keep_share=KEPT),
    FedMinMaxLocal(0.5, 0.2, keep_share=KEPT, epochs=1, batch_size=None),
    GroupDRFA(0.5, 0.2, keep_share=KEPT, steps=1, batch_size=None),
    GroupSCAFFPD(0.5, 0.2, keep_share=KEPT, epochs=1, batch_size=None),
    MinimaxFair(0.5, 10.0, keep_share=KEPT, fit_rounds=10),
    OracleMinimax(1, learning_rate=0.5, keep_share=KEPT, fit_rounds=10),
    APStar(learning_rate=0.5, fit_rounds=20, keep_share=KEPT),
]


def sites() -> list[Any]:
    """Three sites with patterns of their own, of very different sizes."""
    rng = np.random.default_rng(5)
    found = []
    for number, rows in enumerate((120, 40, 20)):
        x = rng.normal(size=(rows, 2))
        score = x @ (rng.normal(size=2) + number) + (0.5 + number) * rng.normal(size=rows)
        y = (score > 0).astype(np.int64)
        found.append((torch.from_numpy(x), torch.from_numpy(y), torch.zeros(rows).long()))
    return found


def objective(models: torch.Tensor) -> float:
    model = start()
    risks, penalties = [], []
    for member in models:
        nn.utils.vector_to_parameters(member, model.parameters())
        with torch.no_grad():
            own = [float(cross_entropy_loss(model(x), y).mean()) for x, y, _ in sites()]
        risks.append(own)
        penalties.append(0.5 * RIDGE * float(member @ member))
    mixed = np.mean(risks, axis=0)
    value: float = (1.0 - KEPT) * mixed.max() + KEPT * mixed @ SHARES + np.mean(penalties)
    return value


def start() -> nn.Module:
    model = nn.Linear(2, 2, dtype=torch.float64)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    return model


def lowest() -> float:
    """The penalised objective over its epigraph is what AFLFast certifies; its proof is enough."""
    done = fit(
        Simulation(start(), cross_entropy_loss, sites(), ridge=RIDGE),
        AFLFast(keep_share=KEPT, optimality_gap=1e-6),
        rounds=60,
    )
    proof = done.certificate
    assert proof is not None
    assert proof.gap < 1e-4
    return proof.lower


@pytest.mark.parametrize("method", METHODS)
def test_its_optimum_is_that_of_the_penalised_objective(method: Any) -> None:
    done = fit(Simulation(start(), cross_entropy_loss, sites(), ridge=RIDGE), method, rounds=500)
    check(done, slack=0.003)


@pytest.mark.parametrize("method", GROUP_METHODS, ids=lambda method: str(method.name))
def test_so_it_is_for_groups(method: Any) -> None:
    rows = [(x, y, group + number) for number, (x, y, group) in enumerate(sites())]
    federation = Simulation(start(), cross_entropy_loss, rows, ridge=RIDGE, minimum_group=1)
    check(fit(federation, method, rounds=1200), slack=0.003)


def check(done: Round[Any], slack: float) -> None:
    least = lowest()
    assert least * (1 - 1e-4) <= objective(done.members) <= (1 + slack) * least
    assert (done.weights.numpy() >= KEPT * SHARES - 1e-12).all()
    assert float(done.weights.sum()) == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(5))
def test_the_projection_is_the_nearest_point(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shares, given = rng.dirichlet(np.ones(5)), rng.normal(size=5)
    fixed = FixedShares(torch.from_numpy(shares), torch.ones(5, dtype=torch.bool), KEPT)
    found = fixed.inside(torch.from_numpy(given)).numpy()
    # The nearest point of {x >= kept, sum x = 1} is max(kept, given - shift) for one shift.
    low, high, right = given.min() - 2.0, given.max() + 2.0, shares
    for _ in range(200):
        shift = 0.5 * (low + high)
        right = np.maximum(KEPT * shares, given - shift)
        low, high = (shift, high) if right.sum() > 1.0 else (low, shift)
    np.testing.assert_allclose(found, right, atol=1e-12)


@pytest.mark.parametrize("make", [AFL, StochasticAFL, DRFA, MinimaxFair, OracleMinimax, APStar])
def test_a_part_of_all_is_refused(make: Any) -> None:
    with pytest.raises(InputError, match="keep_share = 1"):
        make(keep_share=1.0)
