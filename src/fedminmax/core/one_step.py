"""The weighted gradient over many rows in one pass, in chunks that fit the cache.

For every method whose holders take one full-batch step, the sum over holders is
``learning_rate * sum_i c[k_i, a_i] * grad loss_i``: linear in the rows, so it does not matter
whether the rows of one holder or of all holders go through this function.
"""

import math
from itertools import pairwise

import torch
from torch import Tensor

from fedminmax.core.examples import Examples
from fedminmax.core.task import Task
from fedminmax.core.workspace import Workspace

# Activations of one chunk: large enough to keep all cores busy inside one operation, small
# enough that the allocator gets the same blocks back for each chunk.
ACTIVATION_BYTES_PER_CHUNK = 16 * 2**20


def weighted_gradient(
    workspace: Workspace, examples: Examples, row_weights: Tensor, rows_per_chunk: int
) -> tuple[Tensor, Tensor]:
    """Return (sum_i row_weights[i] * grad loss_i, all losses) at the loaded parameters.

    The gradient is the workspace's own buffer, overwritten by the next call.
    """
    workspace.gradient.zero_()
    losses = []
    for chunk in _chunks(len(examples), rows_per_chunk):
        chunk_losses = workspace.loss(workspace.model(examples.x[chunk]), examples.y[chunk])
        torch.dot(chunk_losses, row_weights[chunk]).backward()  # type: ignore[no-untyped-call]
        losses.append(chunk_losses.detach())
    return workspace.gradient, torch.cat(losses)


def losses_of(workspace: Workspace, examples: Examples, rows_per_chunk: int) -> Tensor:
    """Return the loss of each row at the loaded parameters."""
    with torch.no_grad():
        return torch.cat(
            [
                workspace.loss(workspace.model(examples.x[chunk]), examples.y[chunk])
                for chunk in _chunks(len(examples), rows_per_chunk)
            ]
        )


def choose_rows_per_chunk(task: Task, examples: Examples) -> int:
    """Model the chunk size from what one row leaves behind for the backward pass."""
    few = examples.rows(torch.arange(min(2, len(examples))))
    own = {parameter.data_ptr() for parameter in task.model.parameters()}
    saved: dict[int, int] = {}

    def count(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in own:
            saved[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        task.loss(task.model(few.x), few.y)
    bytes_per_row = max(1, sum(saved.values()) // len(few))
    return max(1, ACTIVATION_BYTES_PER_CHUNK // bytes_per_row)


def _chunks(rows: int, rows_per_chunk: int) -> list[slice]:
    """Cut the rows into chunks of equal size, up to one row, none above the limit."""
    pieces = max(1, math.ceil(rows / rows_per_chunk))
    edges = [rows * piece // pieces for piece in range(pieces + 1)]
    return [slice(start, stop) for start, stop in pairwise(edges)]
