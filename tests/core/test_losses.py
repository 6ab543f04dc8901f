"""Losses per example against hand values, numpy and finite differences.

Brier of p = (.5, .5): .25 + .25. Certain and wrong: 1 + 1 = 2, the upper end. Logits
(log 3, 0): p = (.75, .25), so 2 * .0625 if right and 2 * .5625 if wrong.

Losses with their gradients: the same losses, to the bit, and autograd's gradients.
"""

import math
from itertools import product

import numpy as np
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
from tests.oracles import brier_gradient
from tests.problems import Problem, to_numpy

LOG_3 = math.log(3.0)
logit = st.floats(-30.0, 30.0)
tables = st.integers(2, 5).flatmap(
    lambda classes: st.lists(
        st.lists(logit, min_size=classes, max_size=classes), min_size=1, max_size=6
    )
)


def labels_for(logits: list[list[float]]) -> list[int]:
    return [number % len(row) for number, row in enumerate(logits)]


@pytest.mark.parametrize(
    ("logits", "label", "expected"),
    [
        ([0.0, 0.0], 0, 0.5),
        ([LOG_3, 0.0], 0, 0.125),
        ([LOG_3, 0.0], 1, 1.125),
        ([1000.0, 0.0], 1, 2.0),
        ([1000.0, 0.0], 0, 0.0),
        ([0.0, 0.0, 0.0, 0.0], 2, 0.75),
    ],
)
def test_brier_by_hand(logits: list[float], label: int, expected: float) -> None:
    got = brier_loss(torch.tensor([logits], dtype=torch.float64), torch.tensor([label]))
    assert got.shape == (1,)
    assert float(got) == pytest.approx(expected, abs=1e-15)


@given(tables)
def test_brier_is_the_squared_distance_to_the_one_hot_target(logits: list[list[float]]) -> None:
    labels = labels_for(logits)
    z = np.array(logits)
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    expected = ((p - np.eye(z.shape[1])[labels]) ** 2).sum(axis=1)
    got = to_numpy(brier_loss(torch.from_numpy(z), torch.tensor(labels)))
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-14)
    assert got.min() >= -1e-15
    assert got.max() <= 2.0 + 1e-15


@given(tables)
def test_cross_entropy_is_minus_the_log_probability(logits: list[list[float]]) -> None:
    labels = labels_for(logits)
    expected = [
        math.log(math.fsum(math.exp(z - row[label]) for z in row))
        for row, label in zip(logits, labels, strict=True)
    ]
    got = cross_entropy_loss(torch.tensor(logits, dtype=torch.float64), torch.tensor(labels))
    np.testing.assert_allclose(to_numpy(got), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
def test_squared_error_takes_a_vector_or_a_column(shape: tuple[int, ...]) -> None:
    """A column minus a vector would broadcast to a 3 x 3 matrix; the loss must not."""
    outputs = torch.tensor([3.0, -1.0, 0.5]).view(shape)
    got = squared_error_loss(outputs, torch.tensor([1.0, -1.0, 2.0]))
    assert got.tolist() == [4.0, 0.0, 2.25]


def test_brier_gradient_against_the_hand_formula_and_finite_differences() -> None:
    """With x = the unit vectors and no bias, the weights are the logits themselves."""
    rng = np.random.default_rng(5)
    z = rng.normal(size=(4, 3))
    labels = np.array([0, 2, 1, 1])
    logits = torch.from_numpy(z).requires_grad_()
    (gradient,) = torch.autograd.grad(brier_loss(logits, torch.from_numpy(labels)).sum(), [logits])

    shape = Problem([], np.zeros(0), features=4, classes=3, groups=1)
    theta = np.concatenate([z.T.reshape(-1), np.zeros(3)])
    by_hand = brier_gradient(shape, theta, np.eye(4), labels, np.ones(4))[:12].reshape(3, 4).T
    np.testing.assert_allclose(to_numpy(gradient), by_hand, rtol=0, atol=1e-15)

    step = 1e-6
    for row, column in product(range(4), range(3)):
        moved = np.zeros_like(z)
        moved[row, column] = step
        up = brier_loss(torch.from_numpy(z + moved), torch.from_numpy(labels)).sum()
        down = brier_loss(torch.from_numpy(z - moved), torch.from_numpy(labels)).sum()
        assert float(gradient[row, column]) == pytest.approx(
            float(up - down) / (2 * step), abs=1e-9
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
