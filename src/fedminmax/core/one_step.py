"""The weighted gradient over many rows in one pass, in chunks that fit the cache.

For every method whose sites take one full-batch step, the sum over sites is
``learning_rate * sum_i c[k_i, a_i] * grad loss_i``: linear in the rows, so it does not matter
whether the rows of one site or of all sites go through this function.

Sums by group over a site's rows: losses, gradients and, for linear models, curvature.

Every row belongs to one group, so all groups' sums together cost one pass over the rows, in chunks
of a single group each. A network's sums are in its own precision. A linear model's are in float64,
because a server that uses second derivatives, and proves how far it is from the optimum, must not
be limited by rounding.

Curvature is that of the loss in the outputs, a C x C matrix D of row sums 0 for a softmax, times
x x' (x with a 1 for the intercept). Such a D is a sum over pairs of classes of
w_cd (e_c - e_d)(e_c - e_d)' with w_cd = -D_cd: cross-entropy has w_cd = p_c p_d, its exact second
derivative; Brier takes 2 J J' with J = diag(p) - p p', the Gauss-Newton matrix, which is positive
semidefinite (Schraudolph: Fast curvature matrix-vector products, Neural Computation 2002).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from fedminmax.core.examples import Examples
from fedminmax.core.linear_structure import LinearStructure
from fedminmax.core.losses import LOSSES_BY_NAME, LOSSES_WITH_GRADIENTS, chances_of
from fedminmax.core.noise import add_clipped_rows
from fedminmax.core.workspace import Workspace, run_in_parallel


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


# Chunks of this many numbers stay in the cache while they are used several times.
NUMBERS_PER_CHUNK = 2**18
# Of coded rows (``core.additive.sums``): their histograms are larger than the cache, so many rows.
CODED_ROWS_PER_CHUNK = 2**17


@dataclass(frozen=True, eq=False)
class GroupSums:
    """By group: losses [A], gradients in the model's order [A, p], packed curvature [A, q]."""

    losses: Tensor
    gradients: Tensor
    curvature: Tensor


def linear_group_sums(
    structure: LinearStructure,
    parameters: Tensor,
    examples: Examples,
    groups: int,
    *,
    curvature: bool = True,
) -> GroupSums:
    """Return the sums of a linear model with these parameters over these rows.

    Without ``curvature`` that tensor is empty.
    """
    matrix = structure.as_matrix(parameters.detach().double())
    sums = GroupSums(
        torch.zeros(groups, dtype=torch.float64),
        torch.zeros(groups, structure.outputs, structure.columns, dtype=torch.float64),
        torch.zeros(groups, structure.curvature_numbers * curvature, dtype=torch.float64),
    )
    for group, own in _rows_by_part(examples.group, groups):
        for chunk in torch.split(own, linear_rows_per_chunk(structure)):
            _add_chunk(structure, matrix, examples.rows(chunk), group, sums)
    return GroupSums(sums.losses, structure.as_flat(sums.gradients), sums.curvature)


def gradients_by_part(
    workspaces: Sequence[Workspace],
    examples: Examples,
    part: Tensor,
    parts: int,
    rows_per_chunk: int,
) -> tuple[Tensor, Tensor]:
    """Return each row's loss [n] and the gradient sums of each part [parts, p], of any model.

    ``part`` [n] is the part of each row; the model is the loaded one, without its ridge. Each
    workspace takes an equal slice of the rows, sorted by part.
    """
    order = torch.sort(part, stable=True).indices
    stretches = equal_parts(len(order), len(workspaces))
    losses = workspaces[0].flat.new_zeros(len(order))

    def work(worker: int) -> Tensor:
        workspace, own = workspaces[worker], order[stretches[worker]]
        gradients = workspace.flat.new_zeros(parts, len(workspace.flat))
        for number, places in _rows_by_part(part[own], parts):
            workspace.gradient.zero_()
            for chunk in chunks_of(len(places), rows_per_chunk):
                index = own[places[chunk]]
                weights = workspace.flat.new_ones(len(index))
                losses[index] = add_gradient(
                    workspace, examples.x[index], examples.y[index], weights
                )
            gradients[number] = workspace.in_model_order(workspace.gradient)
        return gradients

    first, *others = run_in_parallel(len(workspaces), work)
    for other in others:
        first.add_(other)
    return losses, first


def _rows_by_part(part: Tensor, parts: int) -> Iterator[tuple[int, Tensor]]:
    """Yield each non-empty part and its rows' positions; a stable sort keeps results identical."""
    order = torch.sort(part, stable=True).indices
    sizes = torch.bincount(part, minlength=parts).tolist()
    for number, places in enumerate(torch.split(order, sizes)):
        if len(places):
            yield number, places


def linear_rows_per_chunk(structure: LinearStructure) -> int:
    """Return how many rows of a linear model are summed at a time."""
    if structure.coded:
        return CODED_ROWS_PER_CHUNK
    return max(NUMBERS_PER_CHUNK // structure.columns, 64)


def _add_chunk(
    structure: LinearStructure, matrix: Tensor, rows: Examples, group: int, sums: GroupSums
) -> None:
    x = rows.x.double()
    if structure.intercept:
        x = torch.cat([x, x.new_ones(len(x), 1)], dim=1)
    y = rows.y.double() if rows.y.is_floating_point() else rows.y
    outputs = x @ matrix.T
    losses, gradient = LOSSES_WITH_GRADIENTS[LOSSES_BY_NAME[structure.loss]](outputs, y)
    sums.losses[group] += losses.sum()
    sums.gradients[group].addmm_(gradient.T, x)
    if not sums.curvature.shape[1]:
        return
    weights = pair_weights(structure, outputs)
    lower = torch.tril_indices(structure.columns, structure.columns)
    packed = sums.curvature[group].view(structure.blocks, -1)
    for block in range(structure.blocks):
        product = (x * weights[:, block : block + 1]).T @ x
        packed[block] += product[lower[0], lower[1]]


def pair_weights(structure: LinearStructure, outputs: Tensor) -> Tensor:
    """Return w_cd of every row and pair of classes c < d [n, blocks]."""
    if structure.loss == "squared_error":
        return outputs.new_full((len(outputs), 1), 2.0)
    p = chances_of(outputs)
    first, second = torch.triu_indices(structure.outputs, structure.outputs, 1)
    both = (p.T[first] * p.T[second]).T
    if structure.loss != "brier":
        return both
    # -(2 J J')_cd = 2 p_c p_d (p_c + p_d - |p|^2).
    squares = p.square().sum(dim=1, keepdim=True)
    return 2.0 * both * (p[:, first] + p[:, second] - squares)
