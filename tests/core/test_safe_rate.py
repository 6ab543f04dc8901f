"""The step size against numpy's eigenvalues and autograd's second derivatives."""

import numpy as np
import pytest
import torch

from fedminmax.core.bounds import (
    OUTPUT_CURVATURES,
    first_direction,
    rate_for_eigenvalue,
    rounded_rate,
    safe_learning_rate,
    sum_along,
)
from fedminmax.core.losses import Loss, brier_loss, cross_entropy_loss, squared_error_loss


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
