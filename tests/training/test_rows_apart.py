"""A row's loss must not depend on its company; who mixes rows is told the likely cause."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedminmax.core.examples import Examples
from fedminmax.core.losses import Loss, brier_loss, cross_entropy_loss, squared_error_loss
from fedminmax.core.task import Task
from fedminmax.training.model_checks import check_rows_independent, contrasting_rows
from fedminmax.training.simulation import Simulation
from tests.complaints import complaint_of


def rows(count: int = 6, *, shape: tuple[int, ...] = (2,), quantities: bool = False) -> Examples:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(count, *shape, generator=generator)
    y = torch.randn(count, generator=generator) if quantities else torch.arange(count) % 3
    return Examples(x, y, torch.zeros(count).long())


class Then(nn.Module):
    """A linear layer from 0, as estimators start, and a function of its outputs."""

    def __init__(self, after: Callable[[Tensor], Tensor], outputs: int = 3) -> None:
        super().__init__()
        self.layer = nn.Linear(2, outputs)
        nn.init.zeros_(self.layer.weight)
        nn.init.zeros_(self.layer.bias)
        self.after = after

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.layer(x))


class Recurrent(nn.Module):
    def __init__(self, *, batch_first: bool) -> None:
        super().__init__()
        self.cell = nn.GRU(2, 3, batch_first=batch_first)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.cell(x)[0][:, -1]
        return outputs


def table(outputs: Tensor, targets: Tensor) -> Tensor:
    return ((outputs - targets) ** 2).mean(1)


def shared_by_all(outputs: Tensor, targets: Tensor) -> Tensor:
    return brier_loss(outputs, targets) / len(targets)


def relative_to_the_worst(outputs: Tensor, targets: Tensor) -> Tensor:
    losses = cross_entropy_loss(outputs, targets)
    return losses / losses.detach().max()


@pytest.mark.parametrize(
    ("model", "loss", "words"),
    [
        (nn.Linear(2, 1), table, "[n, 1] minus y of shape [n] is a table"),
        (Then(lambda out: out - out.mean(0)), brier_loss, "centres or normalises over the batch"),
        (Then(lambda out: out.softmax(0)), brier_loss, "the model uses other rows"),
        (Then(lambda out: functional.layer_norm(out.T, out.T.shape).T), brier_loss, "the model"),
        (nn.Linear(2, 3), shared_by_all, "a mean or a sum over rows"),
        (nn.Linear(2, 3), relative_to_the_worst, "the loss uses the whole batch"),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_who_mixes_rows_is_refused(
    model: nn.Module, loss: Loss, words: str, dtype: torch.dtype
) -> None:
    own = rows(quantities=loss is table)
    y = own.y.to(dtype) if own.y.is_floating_point() else own.y
    sites = [(own.x.to(dtype), y, own.group)]
    message = complaint_of(lambda: Simulation(model.to(dtype), loss, sites))
    assert "in a batch of 4" in message
    assert words in message


def test_time_in_the_place_of_rows_is_refused() -> None:
    torch.manual_seed(0)
    own = rows(shape=(5, 2))
    wrong = Task(Recurrent(batch_first=False), brier_loss)
    assert "batch_first" in complaint_of(lambda: check_rows_independent(wrong, own))
    check_rows_independent(Task(Recurrent(batch_first=True), brier_loss), own)


def test_randomness_is_no_mixing() -> None:
    """Both batches of a comparison draw the same numbers, and nobody's own are used up."""
    model = nn.Sequential(nn.Linear(2, 32), nn.Dropout(0.5), nn.Linear(32, 3))
    before = torch.get_rng_state()
    check_rows_independent(Task(model, brier_loss), rows())
    assert torch.equal(torch.get_rng_state(), before)
    shared = Task(model, shared_by_all)
    assert "mean or a sum" in complaint_of(lambda: check_rows_independent(shared, rows()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_rounding_is_no_mixing(dtype: torch.dtype) -> None:
    """Features of a million lose most digits of a loss; how many depends on the batch."""
    torch.manual_seed(0)
    own = rows(200, shape=(40,), quantities=True)
    x = (1e6 + own.x).to(dtype)
    model = nn.Sequential(nn.Linear(40, 64), nn.Tanh(), nn.Linear(64, 1)).to(dtype)
    linear = nn.Linear(40, 1).to(dtype)
    y = linear(x).detach().squeeze(1) + own.y.to(dtype)
    for network in (model, linear):
        check_rows_independent(
            Task(network, squared_error_loss), Examples(x[:4], y[:4], own.group[:4])
        )


@pytest.mark.parametrize("count", [1, 2])
def test_very_few_rows_are_enough(count: int) -> None:
    own = contrasting_rows([rows(count)])
    check_rows_independent(Task(nn.Linear(2, 3), cross_entropy_loss), own)
    assert "mean or a sum" in complaint_of(
        lambda: check_rows_independent(Task(nn.Linear(2, 3), shared_by_all), own)
    )


def test_rows_with_extreme_targets_are_found_at_any_site() -> None:
    """A mean over targets is seen only where targets differ: here at one row of many."""
    x, y = torch.ones(50, 2), torch.zeros(50)
    y[33] = 5.0
    parts = [
        Examples(x[at], y[at], torch.zeros(10).long()) for at in torch.split(torch.arange(50), 10)
    ]
    assert sorted(contrasting_rows(parts).y.tolist()) == [0.0, 0.0, 0.0, 5.0]
    message = complaint_of(
        lambda: check_rows_independent(Task(nn.Linear(2, 1), table), contrasting_rows(parts))
    )
    assert "[n, n]" in message


def test_a_model_that_needs_more_than_one_row_is_told_so() -> None:
    class Squeezing(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            return super().forward(inputs).squeeze()

    message = complaint_of(
        lambda: check_rows_independent(Task(Squeezing(2, 3), brier_loss), rows())
    )
    assert "fail on a batch of one row" in message
