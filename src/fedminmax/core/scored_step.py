"""Local training on the loss plus a slope times the score of the positive class.

Where an objective depends on the mean scores of groups, its gradient is that of a sum over rows of
``slope_i * p_1(x_i)`` once the means are known: the chain rule lets holders descend a function of
everybody's rows with their own rows alone.
"""

import torch
from torch import Tensor

from fedminmax.core.examples import Examples
from fedminmax.core.local_epochs import LocalEpochs, planned_batches
from fedminmax.core.positive_scores import positive_scores
from fedminmax.core.workspace import Workspace


def train_on_scores(
    workspace: Workspace,
    examples: Examples,
    plan: LocalEpochs,
    generator: torch.Generator,
    slopes: Tensor,
) -> Tensor:
    """Train from the loaded parameters; return the trained ones (the workspace's own buffer).

    Each step descends the mean over the batch of ``loss_i + slopes[i] * p_1(x_i)``, and the ridge.
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
