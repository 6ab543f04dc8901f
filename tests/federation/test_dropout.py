"""A model that draws random numbers is seeded by (seed, round, holder) and never pooled."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedminmax.core.iterates import Iterate
from fedminmax.core.losses import brier_loss
from fedminmax.federation.inprocess import InProcessFederation
from fedminmax.federation.train import train
from fedminmax.methods.afl import AFL
from fedminmax.methods.fedminmax import FedMinMax
from tests.contract.cases import MINMAX, Case, Method, every_method
from tests.problems import softmax_problem

PROBLEM = softmax_problem([[4, 2], [3, 3]], classes=2)


class FunctionalDropout(nn.Module):
    """Dropout written in the forward pass, without a module of its own."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.dropout(x, 0.5, training=self.training)


def model(noise: nn.Module) -> nn.Module:
    net = nn.Sequential(nn.Linear(2, 8), noise, nn.Linear(8, 2)).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return net


def run(method: Method, noise: nn.Module, *, seed: int = 0, fused: bool = True) -> Tensor:
    federation = InProcessFederation(model(noise), brier_loss, PROBLEM.holders, fused=fused)
    rounds = train(federation, method, rounds=3, seed=seed)
    return torch.stack([done.parameters(Iterate.LAST) for done in rounds])


@every_method
def test_deterministic_by_seed_whatever_the_global_state(case: Case) -> None:
    torch.manual_seed(1)
    first = run(case.full_batch, nn.Dropout(0.5))
    torch.manual_seed(2)
    assert torch.equal(run(case.full_batch, nn.Dropout(0.5)), first)
    assert not torch.equal(run(case.full_batch, nn.Dropout(0.5), seed=1), first)


@every_method
def test_the_plain_path_is_taken(case: Case) -> None:
    """On the pooled path one mask would be drawn over all rows, and the steps would differ."""
    fused = run(case.full_batch, nn.Dropout(0.5))
    assert torch.equal(fused, run(case.full_batch, nn.Dropout(0.5), fused=False))


def test_every_round_draws_new_masks() -> None:
    """With a vanishing learning rate nothing but the masks differs between rounds."""
    still = FedMinMax(learning_rate=1e-100, adversary_rate=0.0)

    def steps(noise: nn.Module) -> list[Tensor]:
        federation = InProcessFederation(model(noise), brier_loss, PROBLEM.holders)
        return [done.total.step for done in train(federation, still, rounds=2)]

    without, noisy = steps(nn.Dropout(0.0)), steps(nn.Dropout(0.5))
    assert torch.equal(without[0], without[1])
    assert not torch.equal(noisy[0], noisy[1])


def test_holders_with_the_same_rows_draw_different_masks() -> None:
    rows = PROBLEM.holders[0]
    federation = InProcessFederation(model(nn.Dropout(0.5)), brier_loss, [rows, rows])
    losses = next(train(federation, AFL(), rounds=1)).total.holder_loss
    assert float(losses[0]) != float(losses[1])


def test_training_leaves_the_global_random_state_alone() -> None:
    federation = InProcessFederation(model(nn.Dropout(0.5)), brier_loss, PROBLEM.holders)
    before = torch.get_rng_state()
    list(train(federation, MINMAX, rounds=3))
    assert torch.equal(torch.get_rng_state(), before)


def test_building_a_federation_leaves_the_global_random_state_alone() -> None:
    net = model(nn.Dropout(0.5))
    before = torch.get_rng_state()
    InProcessFederation(net, brier_loss, PROBLEM.holders)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("noise", [FunctionalDropout(), nn.RReLU()], ids=["functional", "RReLU"])
def test_other_random_layers_are_seeded_too(noise: nn.Module) -> None:
    torch.manual_seed(1)
    first = run(MINMAX, noise)
    torch.manual_seed(2)
    assert torch.equal(run(MINMAX, noise), first)
