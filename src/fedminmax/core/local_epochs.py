"""Local training: epochs of shuffled mini-batch gradient descent on one holder's rows.

McMahan et al.: Communication-efficient learning of deep networks from decentralized data,
AISTATS 2017, ClientUpdate. The last, smaller batch is kept.

| symbol | name          |
|--------|---------------|
| E      | epochs        |
| B      | batch_size    |
| eta    | learning_rate |
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedminmax.core.examples import Examples
from fedminmax.core.losses import EXPLICIT_GRADIENTS
from fedminmax.core.workspace import Workspace


@dataclass(frozen=True)
class LocalEpochs:
    """How a holder trains on its own rows; ``batch_size`` None means all rows in one batch."""

    epochs: int
    batch_size: int | None
    learning_rate: float


def train_locally(
    workspace: Workspace,
    examples: Examples,
    plan: LocalEpochs,
    generator: torch.Generator,
    row_weights: Tensor | None = None,
) -> Tensor:
    """Train from the loaded parameters; return the trained ones (the workspace's own buffer).

    Each step descends the mean over the batch of ``row_weights[i] * loss_i``.
    """
    rows = len(examples)
    batch_size = rows if plan.batch_size is None else min(plan.batch_size, rows)
    for _ in range(plan.epochs):
        # One batch holds every row whatever their order: no need to shuffle it.
        order = torch.randperm(rows, generator=generator) if batch_size < rows else None
        for start in range(0, rows, batch_size):
            if order is None:
                x, y, weights = examples.x, examples.y, row_weights
            else:
                batch = order[start : start + batch_size].to(examples.x.device)
                x, y = examples.x[batch], examples.y[batch]
                weights = None if row_weights is None else row_weights[batch]
            _take_step(workspace, x, y, weights, plan.learning_rate)
    return workspace.in_model_order(workspace.flat)


def _take_step(
    workspace: Workspace, x: Tensor, y: Tensor, weights: Tensor | None, rate: float
) -> None:
    """Descend the mean weighted loss of one batch, by the cheapest way that the model allows."""
    layers = workspace.explicit_layers
    if layers is None or x.dim() != 2:
        _descend_by_autograd(workspace, _objective(workspace, workspace.model(x), y, weights), rate)
        return
    with torch.no_grad():
        outputs = layers.forward(x)
        layers.descend(_output_gradient(workspace, outputs, y, weights), rate)


def _output_gradient(
    workspace: Workspace, outputs: Tensor, y: Tensor, weights: Tensor | None
) -> Tensor:
    """Return the gradient of the objective in the model's outputs."""
    gradient_by_row = EXPLICIT_GRADIENTS.get(workspace.loss)
    if gradient_by_row is not None:
        gradient = gradient_by_row(outputs, y).mul_(1.0 / len(y))
        return gradient if weights is None else gradient.mul_(weights.unsqueeze(1))
    with torch.enable_grad():
        leaf = outputs.detach().requires_grad_()
        return torch.autograd.grad(_objective(workspace, leaf, y, weights), leaf)[0]


def _objective(workspace: Workspace, outputs: Tensor, y: Tensor, weights: Tensor | None) -> Tensor:
    losses = workspace.loss(outputs, y)
    return losses.mean() if weights is None else torch.dot(losses, weights) / len(y)


def _descend_by_autograd(workspace: Workspace, objective: Tensor, rate: float) -> None:
    gradients = torch.autograd.grad(objective, workspace.parameters, materialize_grads=True)
    with torch.no_grad():
        torch._foreach_add_(tuple(workspace.parameters), gradients, alpha=-rate)
