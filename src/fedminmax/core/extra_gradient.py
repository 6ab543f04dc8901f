"""Local epochs with a further vector added to each step's gradient: a pull, or a correction.

The vector is a closed formula, so it needs no autograd: one addition per step. It is taken at the
parameters before the step, like the gradient that it is added to.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from fedminmax.core.examples import Examples
from fedminmax.core.local_epochs import (
    LocalEpochs,
    planned_batches,
    take_step,
)
from fedminmax.core.workspace import Workspace


def train_with_extra_gradient(
    workspace: Workspace,
    examples: Examples,
    plan: LocalEpochs,
    generator: torch.Generator,
    extra: Callable[[Tensor], Tensor],
    row_weights: Tensor | None = None,
) -> Tensor:
    """Train from the loaded parameters; return the trained ones (the workspace's own buffer).

    ``extra`` maps the workspace's ``flat`` to the vector to add; both are in storage order.
    The batches are those of ``train_locally`` with the same plan and generator.
    """
    for batch in planned_batches(len(examples), plan, generator):
        added = extra(workspace.flat)
        take_step(workspace, examples, batch, row_weights, plan.learning_rate)
        workspace.flat.add_(added, alpha=-plan.learning_rate)
    return workspace.in_model_order(workspace.flat)
