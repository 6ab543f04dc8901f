"""Local training: epochs of shuffled mini-batch gradient descent on one site's rows.

``train_locally`` is ClientUpdate of McMahan et al.: Communication-efficient learning of deep
networks from decentralized data, AISTATS 2017. The last, smaller batch is kept.

| symbol | name          |
|--------|---------------|
| E      | epochs        |
| B      | batch_size    |
| eta    | learning_rate |

Two variants take the same batches: ``train_with_extra_gradient`` adds a vector to each step's
gradient, and ``train_on_scores`` adds a multiple of the positive class's score to each row's loss.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from fedminmax.core.examples import Examples
from fedminmax.core.parity import positive_scores
from fedminmax.core.workspace import Workspace


@dataclass(frozen=True)
class LocalEpochs:
    """How a site trains on its own rows; ``batch_size`` None means all rows in one batch."""

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

    Each step descends the mean over the batch of ``row_weights[i] * (loss_i + penalty)``, where
    the penalty is the ridge's.
    """
    for batch in planned_batches(len(examples), plan, generator):
        take_step(workspace, examples, batch, row_weights, plan.learning_rate)
    return workspace.in_model_order(workspace.flat)


def planned_batches(
    rows: int, plan: LocalEpochs, generator: torch.Generator
) -> Iterator[Tensor | None]:
    """Yield the batches of all of the plan's epochs."""
    steps = plan.epochs * batches_per_epoch(rows, plan.batch_size)
    return islice(shuffled_batches(rows, plan.batch_size, generator), steps)


def shuffled_batches(
    rows: int, batch_size: int | None, generator: torch.Generator
) -> Iterator[Tensor | None]:
    """Yield the rows of one batch after another, epoch after epoch; None stands for all rows."""
    size = rows if batch_size is None else min(batch_size, rows)
    while True:
        if size == rows:
            # One batch holds every row, so there is no need to shuffle.
            yield None
            continue
        order = torch.randperm(rows, generator=generator)
        for start in range(0, rows, size):
            yield order[start : start + size]


def batches_per_epoch(rows: int, batch_size: int | None) -> int:
    """Count the batches that hold every row once.

    >>> batches_per_epoch(250, 100)
    3
    """
    return 1 if batch_size is None else math.ceil(rows / batch_size)


def take_step(
    workspace: Workspace,
    examples: Examples,
    batch: Tensor | None,
    row_weights: Tensor | None,
    rate: float,
) -> None:
    """Descend the mean weighted loss of one batch, in the cheapest way the model allows.

    A ridge's gradient is a multiple of the parameters before the step.
    """
    x, y, weights = examples.x, examples.y, row_weights
    if batch is not None:
        batch = batch.to(x.device)
        x, y = x[batch], y[batch]
        weights = None if weights is None else weights[batch]
    kept = 1.0
    if workspace.ridge:
        kept -= rate * workspace.ridge * (1.0 if weights is None else float(weights.mean()))
    layers = workspace.explicit_layers
    if layers is None or x.dim() != 2:
        objective = _objective(workspace, workspace.model(x), y, weights)
        _descend_by_autograd(workspace, objective, rate, kept)
        return
    with torch.no_grad():
        output_gradient = _output_gradient(workspace, layers.forward(x), y, weights)
        if kept != 1.0:
            workspace.flat.mul_(kept)
        layers.descend(output_gradient, rate)


def _output_gradient(
    workspace: Workspace, outputs: Tensor, y: Tensor, weights: Tensor | None
) -> Tensor:
    """Return the gradient of the objective in the model's outputs."""
    gradient_by_row = workspace.explicit_gradient
    if gradient_by_row is not None and y.dim() == 1:
        gradient = gradient_by_row(outputs, y).mul_(1.0 / len(y))
        return gradient if weights is None else gradient.mul_(weights.unsqueeze(1))
    with torch.enable_grad():
        leaf = outputs.detach().requires_grad_()
        # A copy: the loss may write into its outputs, but not into an autograd leaf.
        return torch.autograd.grad(_objective(workspace, leaf.clone(), y, weights), leaf)[0]


def _objective(workspace: Workspace, outputs: Tensor, y: Tensor, weights: Tensor | None) -> Tensor:
    losses = workspace.loss(outputs, y)
    return losses.mean() if weights is None else torch.dot(losses, weights) / len(y)


def _descend_by_autograd(workspace: Workspace, objective: Tensor, rate: float, kept: float) -> None:
    gradients = torch.autograd.grad(objective, workspace.parameters, materialize_grads=True)
    with torch.no_grad():
        if kept != 1.0:
            workspace.flat.mul_(kept)
        torch._foreach_add_(tuple(workspace.parameters), gradients, alpha=-rate)


def train_with_extra_gradient(
    workspace: Workspace,
    examples: Examples,
    plan: LocalEpochs,
    generator: torch.Generator,
    *,
    extra: Callable[[Tensor], Tensor],
    row_weights: Tensor | None = None,
) -> Tensor:
    """Train from the loaded parameters; return the trained ones (the workspace's own buffer).

    ``extra`` maps the workspace's ``flat`` to the vector that is added to the step's gradient, a
    pull or a correction; both are in storage order. The vector is a closed formula, so it needs no
    autograd: one addition per step. It is taken at the parameters before the step, like the
    gradient that it is added to. The batches are those of ``train_locally`` with the same plan and
    generator.
    """
    for batch in planned_batches(len(examples), plan, generator):
        added = extra(workspace.flat)
        take_step(workspace, examples, batch, row_weights, plan.learning_rate)
        workspace.flat.add_(added, alpha=-plan.learning_rate)
    return workspace.in_model_order(workspace.flat)


def train_on_scores(
    workspace: Workspace,
    examples: Examples,
    plan: LocalEpochs,
    generator: torch.Generator,
    slopes: Tensor,
) -> Tensor:
    """Train from the loaded parameters; return the trained ones (the workspace's own buffer).

    Each step descends the mean over the batch of ``loss_i + slopes[i] * p_1(x_i)``, and the ridge.
    Where an objective depends on the mean scores of groups, its gradient is that of a sum over rows
    of ``slope_i * p_1(x_i)`` once the means are known. By the chain rule, sites can thus descend
    a function of all rows using only their own.
    """
    for batch in planned_batches(len(examples), plan, generator):
        _take_scored_step(workspace, examples, batch, slopes, plan.learning_rate)
    return workspace.in_model_order(workspace.flat)


def _take_scored_step(
    workspace: Workspace, examples: Examples, batch: Tensor | None, slopes: Tensor, rate: float
) -> None:
    x, y = examples.x, examples.y
    if batch is not None:
        batch = batch.to(x.device)
        x, y, slopes = x[batch], y[batch], slopes[batch]
    outputs = workspace.model(x)
    objective = (workspace.loss(outputs, y) + slopes * positive_scores(outputs)).mean()
    workspace.gradient.zero_()
    torch.autograd.backward(objective)
    workspace.gradient.add_(workspace.flat, alpha=workspace.ridge)
    workspace.flat.add_(workspace.gradient, alpha=-rate)
