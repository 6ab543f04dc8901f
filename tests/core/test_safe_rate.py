"""The step size against numpy's eigenvalues and autograd's second derivatives."""

import numpy as np
import pytest
import torch

from fedminmax.core.losses import Loss, brier_loss, cross_entropy_loss, squared_error_loss
from fedminmax.core.safe_rate import OUTPUT_CURVATURES, safe_learning_rate


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
