"""Limits from the lengths of rows: nothing that autograd finds is above them; they are sharp."""

import math

import pytest
import torch
from torch import Tensor, nn

from fedminmax.core.bounds import RowLengths, RowLimits, row_limits
from fedminmax.core.losses import Loss, brier_loss, cross_entropy_loss, squared_error_loss
from fedminmax.core.models import mlp

CLASSES = 3


def limits_of(model: nn.Module, loss: Loss) -> RowLimits:
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    flat = torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])
    return row_limits(layers, flat, loss)


def lengths_of(x: Tensor, y: Tensor) -> RowLengths:
    squares = x.square().sum() + len(x)
    targets = y.square().sum() if y.is_floating_point() else torch.zeros(())
    return RowLengths(math.sqrt(float(squares)), math.sqrt(float(targets)))


@pytest.mark.parametrize("hidden", [(), (5,), (6, 4)], ids=str)
@pytest.mark.parametrize("loss", [brier_loss, cross_entropy_loss, squared_error_loss])
def test_no_table_has_losses_or_gradients_above_the_limits(
    loss: Loss, hidden: tuple[int, ...]
) -> None:
    torch.manual_seed(1)
    outputs = 1 if loss is squared_error_loss else CLASSES
    for spread in (0.01, 1.0, 30.0):
        model = mlp(4, outputs, hidden).double()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(spread)
        rows = int(torch.randint(1, 9, ()))
        x = torch.randn(rows, 4, dtype=torch.float64) * torch.rand(4) * 3
        # The worst target of each row, which is what a limit has to cover.
        y = model(x).detach().argmin(1) if outputs > 1 else -2.0 * torch.randn(rows).double()
        losses = loss(model(x), y)
        limits, lengths = limits_of(model, loss), lengths_of(x, y)
        told = losses.detach().sum()
        assert told <= limits.max_loss_sums(torch.tensor([rows]), lengths)[0] * (1 + 1e-12)
        weights = torch.rand(rows, dtype=torch.float64)
        gradients = torch.autograd.grad(losses @ weights, list(model.parameters()))
        length = torch.cat([gradient.reshape(-1) for gradient in gradients]).norm()
        slopes = limits.squared_slopes(torch.tensor([rows]), told.unsqueeze(0))[0]
        assert length <= weights.max() * slopes.sqrt() * lengths.rows


def test_one_row_of_the_worst_kind_attains_the_limit() -> None:
    """Brier's slope is largest where 2/3 are on the wrong one of two classes."""
    model = nn.Linear(2, 2).double()
    x = torch.tensor([[3.0, 4.0]], dtype=torch.float64)
    with torch.no_grad():
        model.weight.zero_()
        model.bias.copy_(torch.tensor([math.log(2.0), 0.0]))
    gradients = torch.autograd.grad(
        brier_loss(model(x), torch.tensor([1])).sum(), list(model.parameters())
    )
    length = torch.cat([gradient.reshape(-1) for gradient in gradients]).norm()
    assert float(length) == pytest.approx(limits_of(model, brier_loss).slope * math.sqrt(26.0))
