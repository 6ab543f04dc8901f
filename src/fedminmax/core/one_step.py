"""The weighted gradient over many rows in one pass, in chunks that fit the cache.

For every method whose sites take one full-batch step, the sum over sites is
``learning_rate * sum_i c[k_i, a_i] * grad loss_i``: linear in the rows, so it does not matter
whether the rows of one site or of all sites go through this function.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from fedminmax.core.examples import Examples
from fedminmax.core.noise import add_clipped_rows
from fedminmax.core.workers import run_in_parallel
from fedminmax.core.workspace import Workspace


def weighted_gradient(
    workspaces: Sequence[Workspace],
    examples: Examples,
    row_weights: Tensor,
    rows_per_chunk: int,
) -> tuple[Tensor, Tensor]:
    """Return (sum_i row_weights[i] * grad loss_i, all losses) at the loaded parameters.

    The gradient includes the ridge unless rows are clipped (the ridge belongs to no row; the server
    adds it), the losses do not. Each workspace takes an equal slice of the rows. The gradient is
    the first workspace's buffer, overwritten by the next call.
    """
    stretches = equal_parts(len(examples), len(workspaces))

    def work(worker: int) -> Tensor:
        own = stretches[worker]
        rows = Examples(examples.x[own], examples.y[own], examples.group[own])
        return _accumulate(workspaces[worker], rows, row_weights[own], rows_per_chunk)

    losses = run_in_parallel(len(workspaces), work)
    first, *others = workspaces
    for workspace in others:
        first.gradient.add_(workspace.gradient)
    return first.in_model_order(first.gradient), torch.cat(losses)


def _accumulate(
    workspace: Workspace, examples: Examples, row_weights: Tensor, rows_per_chunk: int
) -> Tensor:
    """Put the weighted gradient into the workspace's buffer and return the losses."""
    workspace.gradient.zero_()
    losses = [
        add_gradient(workspace, examples.x[chunk], examples.y[chunk], row_weights[chunk])
        for chunk in chunks_of(len(examples), rows_per_chunk)
    ]
    if workspace.ridge and workspace.limits is None:
        total = float(row_weights.sum(dtype=torch.float64))
        workspace.gradient.add_(workspace.flat, alpha=workspace.ridge * total)
    return torch.cat(losses)


def add_gradient(workspace: Workspace, x: Tensor, y: Tensor, row_weights: Tensor) -> Tensor:
    """Add the gradient of some rows in the cheapest way the model allows; return their losses.

    Both are clipped if the workspace has limits.
    """
    layers, with_gradient = workspace.explicit_layers, workspace.loss_with_gradient
    # Two-dimensional labels have a share for each class; our own gradients take class numbers.
    limits = workspace.limits
    if layers is None or with_gradient is None or x.dim() != 2 or y.dim() != 1:
        if limits is not None:
            slots = list(zip(workspace.parameters, workspace.gradient_slots, strict=True))
            return add_clipped_rows(
                workspace.model,
                workspace.loss,
                slots,
                rows=(x, y),
                row_weights=row_weights,
                limits=limits,
            )
        losses = workspace.loss(workspace.model(x), y)
        torch.autograd.backward(torch.dot(losses, row_weights))
        return losses.detach()
    with torch.no_grad():
        losses, output_gradient = with_gradient(layers.forward(x), y)
        if limits is not None:
            squares = layers.squared_row_lengths(output_gradient)
            finite = squares.isfinite()
            if not bool(finite.all()):
                return _add_finite(workspace, x, y, row_weights, finite, limits.loss)
            losses = limits.losses(losses)
            row_weights = row_weights * limits.factors(squares)
        output_gradient.mul_(row_weights.unsqueeze(1))
        layers.add_gradient(output_gradient, workspace.gradient_slots)
    return losses


def _add_finite(
    workspace: Workspace,
    x: Tensor,
    y: Tensor,
    row_weights: Tensor,
    finite: Tensor,
    largest_loss: float,
) -> Tensor:
    """Add the gradient of those rows that have a finite one; the others have the largest loss."""
    losses = row_weights.new_full((len(x),), largest_loss)
    if bool(finite.any()):
        losses[finite] = add_gradient(workspace, x[finite], y[finite], row_weights[finite])
    return losses


def losses_of(workspace: Workspace, examples: Examples, rows_per_chunk: int) -> Tensor:
    """Return the loss of each row at the loaded parameters."""
    with torch.no_grad():
        return torch.cat(
            [
                workspace.loss(workspace.model(examples.x[chunk]), examples.y[chunk])
                for chunk in chunks_of(len(examples), rows_per_chunk)
            ]
        )


def evaluation_losses(
    workspaces: Sequence[Workspace], parameters: Tensor, examples: Examples, rows_per_chunk: int
) -> Tensor:
    """Return the loss of each row with these parameters, in evaluation mode.

    Each workspace takes an equal slice of the rows.
    """
    stretches = equal_parts(len(examples), len(workspaces))

    def work(worker: int) -> Tensor:
        own, workspace = stretches[worker], workspaces[worker]
        rows = Examples(examples.x[own], examples.y[own], examples.group[own])
        workspace.load(parameters)
        workspace.model.eval()
        try:
            return losses_of(workspace, rows, rows_per_chunk)
        finally:
            workspace.model.train()

    return torch.cat(run_in_parallel(len(workspaces), work))


def chunks_of(rows: int, rows_per_chunk: int) -> list[slice]:
    """Cut the rows into chunks of equal size, up to one row, none above the limit."""
    return equal_parts(rows, max(1, math.ceil(rows / rows_per_chunk)))


def equal_parts(rows: int, parts: int) -> list[slice]:
    """Cut the rows into this many slices of equal size, up to one row."""
    edges = [rows * part // parts for part in range(parts + 1)]
    return [slice(start, stop) for start, stop in pairwise(edges)]
