"""The benchmark that leaves ingredients of the first-order server out is about that server."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from benchmarks.ablated_server import AblatedServer
from fedminmax.core.losses import brier_loss
from fedminmax.methods.look_ahead import FedMinMaxFast
from fedminmax.methods.shared.first_order_server import FirstOrderState
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import train

ROUNDS = 40


def tries(method: Any) -> list[FirstOrderState]:
    """The state after each round on a small network with three groups."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(90, 3, generator=generator, dtype=torch.float64)
    group = torch.arange(90) % 3
    y = (x[:, 0] * (group - 1) + 0.3 * x[:, 1] > 0).long()
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    federation = Simulation(model, brier_loss, [(x, y, group)])
    return [done.progress.state for done in train(federation, method, rounds=ROUNDS)]


def path(states: list[FirstOrderState]) -> Tensor:
    return torch.stack([torch.cat([own.parameters, own.weights]) for own in states])


def test_with_every_ingredient_it_makes_the_products_steps() -> None:
    whole = tries(FedMinMaxFast(curvature=False, optimality_gap=0.0))
    torch.testing.assert_close(path(tries(AblatedServer())), path(whole), rtol=1e-9, atol=1e-9)
    # Both of its branches: tries that were kept, and some that were not.
    assert whole[-1].failures > 1
    assert whole[-1].rounds > ROUNDS // 2


@pytest.mark.parametrize(
    "ablated",
    [
        AblatedServer(metric=False),
        AblatedServer(look_ahead=False),
        AblatedServer(chooses_rate=False),
    ],
)
def test_without_one_of_them_it_does_not(ablated: AblatedServer) -> None:
    assert float((path(tries(ablated)) - path(tries(AblatedServer()))).abs().max()) > 1e-3
