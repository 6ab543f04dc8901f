"""A model that draws random numbers is seeded by (seed, round, site) and never pooled."""

import random
from collections.abc import Callable
from itertools import count

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedminmax.core.iterates import Iterate
from fedminmax.core.losses import Loss, brier_loss
from fedminmax.methods.afl import AFL
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.testing import Case
from fedminmax.testing.case import Method
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import train
from tests.complaints import complaint_of
from tests.contract.cases import MINMAX, every_method
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
    federation = Simulation(model(noise), brier_loss, PROBLEM.sites, fused=fused)
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
        federation = Simulation(model(noise), brier_loss, PROBLEM.sites)
        return [done.total.step for done in train(federation, still, rounds=2)]

    without, noisy = steps(nn.Dropout(0.0)), steps(nn.Dropout(0.5))
    assert torch.equal(without[0], without[1])
    assert not torch.equal(noisy[0], noisy[1])


def test_sites_with_the_same_rows_draw_different_masks() -> None:
    rows = PROBLEM.sites[0]
    federation = Simulation(model(nn.Dropout(0.5)), brier_loss, [rows, rows])
    losses = next(train(federation, AFL(), rounds=1)).total.site_loss
    assert float(losses[0]) != float(losses[1])


def test_training_leaves_the_global_random_state_alone() -> None:
    federation = Simulation(model(nn.Dropout(0.5)), brier_loss, PROBLEM.sites)
    before = torch.get_rng_state()
    list(train(federation, MINMAX, rounds=3))
    assert torch.equal(torch.get_rng_state(), before)


def test_building_a_federation_leaves_the_global_random_state_alone() -> None:
    net = model(nn.Dropout(0.5))
    before = torch.get_rng_state()
    Simulation(net, brier_loss, PROBLEM.sites)
    assert torch.equal(torch.get_rng_state(), before)


def noisy_gradient(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the Brier loss, with gradients that are off by random factors."""
    losses = brier_loss(outputs, targets)
    node = losses.grad_fn
    if node is not None:
        node.register_prehook(
            lambda gradients: tuple(own * torch.rand_like(own) for own in gradients)
        )
    return losses


def with_noise(draw: Callable[[int], Tensor]) -> Loss:
    """Return the Brier loss with weights of rows that are drawn at each call."""
    return lambda outputs, targets: brier_loss(outputs, targets) * draw(len(targets))


NOISY_LOSSES: dict[str, Loss] = {
    "torch": with_noise(lambda rows: torch.rand(rows)),
    "numpy": with_noise(lambda rows: torch.from_numpy(np.random.rand(rows))),  # noqa: NPY002
    "Python": with_noise(lambda rows: torch.tensor([random.random() for _ in range(rows)])),  # noqa: S311
    "a backward pass": noisy_gradient,
}


def seed_everything(seed: int) -> None:
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    random.seed(seed)


@pytest.mark.parametrize("source", list(NOISY_LOSSES))
def test_a_loss_that_draws_is_seeded_too_and_leaves_the_global_states_alone(source: str) -> None:
    net = PROBLEM.model()

    def run_with(seed: int) -> Tensor:
        federation = Simulation(net, NOISY_LOSSES[source], PROBLEM.sites)
        rounds = train(federation, MINMAX, rounds=2, seed=seed)
        return torch.stack([done.parameters(Iterate.LAST) for done in rounds])

    seed_everything(1)
    first = run_with(0)
    drawn = torch.rand(1), np.random.rand(), random.random()  # noqa: NPY002, S311
    seed_everything(1)
    assert drawn == (torch.rand(1), np.random.rand(), random.random())  # noqa: NPY002, S311
    assert torch.equal(run_with(0), first)
    assert not torch.equal(run_with(1), first)


own_stream = np.random.default_rng()
calls = count(1)
UNREPEATABLE: dict[str, Loss] = {
    "a generator of its own": with_noise(lambda rows: torch.from_numpy(own_stream.random(rows))),
    "a counter": with_noise(lambda _: torch.tensor(1.0 / next(calls))),
}


@pytest.mark.parametrize("source", list(UNREPEATABLE))
def test_a_loss_that_no_seed_repeats_is_refused(source: str) -> None:
    message = complaint_of(lambda: PROBLEM.federation(loss=UNREPEATABLE[source]))
    assert "for the same rows and the same seed" in message


@pytest.mark.parametrize("noise", [FunctionalDropout(), nn.RReLU()], ids=["functional", "RReLU"])
def test_other_random_layers_are_seeded_too(noise: nn.Module) -> None:
    torch.manual_seed(1)
    first = run(MINMAX, noise)
    torch.manual_seed(2)
    assert torch.equal(run(MINMAX, noise), first)
