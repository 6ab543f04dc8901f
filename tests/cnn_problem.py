"""A small convolutional problem in float64, and its gradients by plain autograd.

Convolution weights are stored in another order inside the library, so a vector that is used in the
wrong order shows only here.
"""

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from fedminmax.core.losses import brier_loss
from fedminmax.core.models import cnn
from tests.problems import Rows


def small_cnn(seed: int = 1) -> nn.Module:
    """Two convolutions of few channels."""
    torch.manual_seed(seed)
    return cnn((2, 8, 8), 3, (4, 5)).double()


def image_rows(rows: int, seed: int = 0) -> Rows:
    """Random images of two channels, three classes, two groups."""
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(rows, 2, 8, 8, generator=generator, dtype=torch.float64),
        torch.randint(3, (rows,), generator=generator),
        torch.arange(rows) % 2,
    )


def start_vector(model: nn.Module) -> Tensor:
    """The model's parameters in its own order."""
    return parameters_to_vector(model.parameters()).detach().clone()


def mean_gradient(theta: Tensor, rows: Rows, row_weights: Tensor | None = None) -> Tensor:
    """Return (1/n) sum_i row_weights[i] * grad loss_i at these parameters."""
    x, y, _ = rows
    model = small_cnn()
    vector_to_parameters(theta, model.parameters())
    losses = brier_loss(model(x), y)
    objective = losses.mean() if row_weights is None else (losses * row_weights).mean()
    gradients = torch.autograd.grad(objective, list(model.parameters()))
    return torch.cat([piece.reshape(-1) for piece in gradients])
