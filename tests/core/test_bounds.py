"""The step size against numpy's eigenvalues and autograd's second derivatives.

Limits from the lengths of rows: nothing that autograd finds is above them; they are sharp.
"""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedminmax.core.bounds import (
    OUTPUT_CURVATURES,
    RowLengths,
    RowLimits,
    first_direction,
    rate_for_eigenvalue,
    rounded_rate,
    row_limits,
    safe_learning_rate,
    sum_along,
)
from fedminmax.core.losses import Loss, brier_loss, cross_entropy_loss, squared_error_loss
from fedminmax.core.models import mlp


@pytest.mark.parametrize("loss", [brier_loss, cross_entropy_loss])
@pytest.mark.parametrize("classes", [2, 3, 6])
def test_no_output_has_more_curvature_than_the_table_says(loss: Loss, classes: int) -> None:
    torch.manual_seed(0)
    points = torch.randn(2000, classes, dtype=torch.float64) * 2.0
    points.requires_grad_()
    losses = loss(points, torch.zeros(len(points), dtype=torch.int64))
    (slopes,) = torch.autograd.grad(losses.sum(), points, create_graph=True)
    columns = [
        torch.autograd.grad(slopes[:, number].sum(), points, retain_graph=True)[0]
        for number in range(classes)
    ]
    hessians = torch.stack(columns, dim=2)
    largest = float(torch.linalg.eigvalsh(hessians).abs().max())
    assert 0.8 * OUTPUT_CURVATURES[loss] < largest <= OUTPUT_CURVATURES[loss]


def test_the_rate_is_one_over_the_largest_curvature_of_a_group() -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(300, 5)) @ generator.normal(size=(5, 5))
    group = np.repeat([0, 1, 2], 100)
    x[group == 2] *= 3.0
    largest = 0.0
    for number in range(3):
        rows = np.column_stack([x[group == number], np.ones(100)])
        largest = max(largest, float(np.linalg.eigvalsh(rows.T @ rows / 100).max()))
    rate = safe_learning_rate(
        squared_error_loss, torch.from_numpy(x), torch.from_numpy(group), linear=True
    )
    assert rate == pytest.approx(1.0 / (2.0 * largest), rel=1e-3)
    network = safe_learning_rate(
        brier_loss, torch.from_numpy(x) / 1e3, torch.from_numpy(group), linear=False
    )
    assert network == 0.1


def test_rates_are_cut_to_two_digits_and_never_grow() -> None:
    words = {0.46999: "0.46", 1.0: "1", 12.97: "12", 0.0039999: "0.0039", 1 / 3: "0.33"}
    assert {rate: rounded_rate(rate) for rate in words} == words
    for rate in np.random.default_rng(0).lognormal(0.0, 6.0, size=500).tolist():
        cut = float(rounded_rate(rate))
        assert 0.9 * rate < cut <= rate


@pytest.mark.parametrize("parts", [1, 3])
def test_sums_along_a_direction_are_that_of_the_second_moment(parts: int) -> None:
    """Sums over parts of the rows add up to (sum of x x^T) v, with a 1 for the intercept."""
    generator = np.random.default_rng(1)
    x, direction = generator.normal(size=(40, 4)), first_direction(4, torch.float64)
    rows = np.column_stack([x, np.ones(40)])
    assert direction.shape == (5,)
    found = sum(
        sum_along(torch.from_numpy(part), direction).numpy() for part in np.array_split(x, parts)
    )
    np.testing.assert_allclose(found, rows.T @ rows @ direction.numpy())


def test_descent_at_the_rate_of_an_eigenvalue_falls_in_every_step() -> None:
    """Least squares: at 1 / curvature the loss falls, at a little over 2 / curvature it grows."""
    generator = np.random.default_rng(2)
    rows = np.column_stack([generator.normal(size=(50, 3)), np.ones(50)])
    y = generator.normal(size=50)
    largest = float(np.linalg.eigvalsh(rows.T @ rows / 50).max())
    rate = rate_for_eigenvalue(squared_error_loss, largest, linear=True)
    for factor, falls in ((1.0, True), (2.1, False)):
        theta, losses = np.full(4, 5.0), []
        for _ in range(60):
            error = rows @ theta - y
            losses.append(float((error**2).mean()))
            theta -= factor * rate * 2.0 * rows.T @ error / 50
        assert (np.diff(losses) <= 1e-12).all() == falls
    assert rate_for_eigenvalue(squared_error_loss, 1e-3, linear=False) == 0.1


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
