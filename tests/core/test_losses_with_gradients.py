"""Losses with their gradients: the same losses, to the bit, and autograd's gradients."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedminmax.core.losses import (
    LOSSES_BY_NAME,
    LOSSES_WITH_GRADIENTS,
    Loss,
    brier_loss,
    cross_entropy_loss,
    squared_error_loss,
)


@given(
    loss=st.sampled_from([brier_loss, cross_entropy_loss, squared_error_loss]),
    classes=st.integers(2, 5),
    size=st.sampled_from([0.1, 1.0, 30.0]),
    seed=st.integers(0, 50),
)
def test_as_autograd_has_them(loss: Loss, classes: int, size: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    quantity = loss is squared_error_loss
    shape = (9, 1 if quantity else classes)
    outputs = size * torch.randn(shape, generator=generator, dtype=torch.float64)
    labels = torch.randint(classes, (9,), generator=generator)
    targets = labels.double() if quantity else labels
    leaf = outputs.clone().requires_grad_()
    expected = loss(leaf, targets)
    (gradient,) = torch.autograd.grad(expected.sum(), leaf)
    before = outputs.clone()
    losses, found = LOSSES_WITH_GRADIENTS[loss](outputs, targets)
    assert torch.equal(losses, expected.detach())
    assert torch.allclose(found, gradient, rtol=1e-12, atol=1e-15)
    assert torch.equal(outputs, before)


@pytest.mark.parametrize("name", LOSSES_BY_NAME)
def test_every_loss_that_a_configuration_can_name_has_one(name: str) -> None:
    assert LOSSES_BY_NAME[name] in LOSSES_WITH_GRADIENTS
