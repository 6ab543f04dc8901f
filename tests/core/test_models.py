"""Parameter counts and output shapes of the paper's models, counted by hand.

A layer from m to n has (m + 1) n parameters, a 3x3 convolution from c to d channels (9 c + 1) d.
Two 2x2 poolings turn 28 x 28 into 7 x 7.
"""

import pytest
import torch
from torch import nn

from fedminmax.core.models import cnn, linear, mlp


def size(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (linear(3, 2), 4 * 2),
        (mlp(1, 2), 2 * 512 + 3 * 513 * 512 + 513 * 2),
        (mlp(5, 3, (4,)), 6 * 4 + 5 * 3),
        (mlp(5, 3, ()), 6 * 3),
        (cnn(), (9 + 1) * 16 + (9 * 16 + 1) * 32 + (7 * 7 * 32 + 1) * 10),
        (cnn((3, 8, 12), 4, (2, 5)), (27 + 1) * 2 + (18 + 1) * 5 + (2 * 3 * 5 + 1) * 4),
    ],
)
def test_number_of_parameters(model: nn.Module, expected: int) -> None:
    assert size(model) == expected


@pytest.mark.parametrize(
    ("model", "image", "outputs"),
    [
        (linear(3, 2), (3,), 2),
        (mlp(1, 2), (1,), 2),
        (cnn(), (1, 28, 28), 10),
        (cnn((3, 9, 13), 4, (2, 5)), (3, 9, 13), 4),
    ],
)
def test_outputs_are_one_row_per_example(
    model: nn.Module, image: tuple[int, ...], outputs: int
) -> None:
    assert model(torch.zeros(6, *image)).shape == (6, outputs)


def test_the_mlp_is_not_linear() -> None:
    """f(x) + f(-x) = 2 f(0) for every affine map; ReLU between the layers breaks it."""
    torch.manual_seed(0)
    model = mlp(1, 1, (8, 8))
    x = torch.tensor([[1.0]])
    with torch.no_grad():
        assert abs(float(model(x) + model(-x) - 2 * model(0 * x))) > 1e-3


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (linear(2, 2), (5, 2)),
        (mlp(2, 2, (3,)), (5, 2)),
        (cnn((1, 4, 4), 2, (2, 2)), (5, 1, 4, 4)),
    ],
)
def test_a_row_is_predicted_alike_alone_and_in_company(
    model: nn.Module, shape: tuple[int, ...]
) -> None:
    """No batch statistics: Lemma 2 needs each row's loss to depend on that row only."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(model(x)[:1], model(x[:1]))
