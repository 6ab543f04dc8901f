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
    parameters = tuple(workspace.parameters)
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
            losses = workspace.loss(workspace.model(x), y)
            objective = losses.mean() if weights is None else torch.dot(losses, weights) / len(y)
            gradients = torch.autograd.grad(objective, parameters, materialize_grads=True)
            with torch.no_grad():
                torch._foreach_add_(parameters, gradients, alpha=-plan.learning_rate)
    return workspace.flat
