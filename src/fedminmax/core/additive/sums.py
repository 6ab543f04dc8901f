"""Sums by group over coded records: histograms instead of matrix products.

A record has one code in each of F blocks. So gradients are histograms of slopes by group and code,
and curvature is a histogram for each pair of blocks: F (F + 1) / 2 additions per record, whatever
the number of codes (Wood, Li, Shaddick, Augustin: Generalized additive models for gigadata, JASA
2017). A linear model of the codes' indicators has the same sums (``core.group_sums``).

Curvature is one matrix: that of the weighted sum of the groups' losses, with a weight for each
group that the server chooses. Its second derivatives in the outputs are as in ``core.group_sums``.
"""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedminmax.core.additive.model import Design
from fedminmax.core.examples import Examples
from fedminmax.core.group_sums import CODED_ROWS_PER_CHUNK, GroupSums, pair_weights
from fedminmax.core.linear_structure import LinearStructure
from fedminmax.core.losses import LOSSES_BY_NAME, LOSSES_WITH_GRADIENTS

Columns = NDArray[np.int64]


def coded_group_sums(
    structure: LinearStructure,
    design: Design,
    parameters: Tensor,
    examples: Examples,
    groups: int,
    *,
    group_weights: Tensor | None = None,
) -> GroupSums:
    """Return losses and gradients by group, and one curvature if groups have weights.

    All are in the model's coordinates. Without ``group_weights`` [A] the curvature is empty.
    """
    matrix = structure.as_matrix(parameters.detach().double())
    effects, intercepts = design.transformed(matrix[:, :-1]).numpy(), matrix[:, -1].numpy()
    outputs, columns = structure.outputs, design.columns
    losses = np.zeros(groups)
    gradients = np.zeros((groups, outputs, columns + 1))
    blocks = structure.blocks if group_weights is not None else 0
    curvature = np.zeros((blocks, columns + 1, columns + 1))
    for codes, scores, y, group in _chunks(design, effects, intercepts, examples):
        record_losses, slopes = LOSSES_WITH_GRADIENTS[LOSSES_BY_NAME[structure.loss]](
            torch.from_numpy(scores), y
        )
        losses += np.bincount(group, record_losses.numpy(), groups)
        _add_gradients(gradients, design, codes, group, slopes.numpy())
        if group_weights is not None:
            weights = pair_weights(structure, torch.from_numpy(scores)).numpy()
            weights = weights * group_weights.numpy()[group][:, None]
            for block in range(blocks):
                _add_curvature(curvature[block], design, codes, weights[:, block].copy())
    return GroupSums(
        torch.from_numpy(losses),
        structure.as_flat(_in_model_coordinates(design, torch.from_numpy(gradients))),
        _packed(design, torch.from_numpy(curvature)),
    )


def coded_bends(
    structure: LinearStructure, design: Design, parameters: Tensor, examples: Examples
) -> Tensor:
    """Return second derivatives in each output, summed by code [outputs, columns].

    Those of one output are p (1 - p) of its class; 2 for squared errors.
    """
    matrix = structure.as_matrix(parameters.detach().double())
    effects, intercepts = design.transformed(matrix[:, :-1]).numpy(), matrix[:, -1].numpy()
    sums = np.zeros((structure.outputs, design.columns))
    for codes, scores, _, _ in _chunks(design, effects, intercepts, examples):
        if structure.loss == "squared_error":
            bends = np.full_like(scores, 2.0)
        else:
            chances = torch.softmax(torch.from_numpy(scores), dim=1).numpy()
            bends = chances * (1.0 - chances)
        for output in range(structure.outputs):
            weights = np.ascontiguousarray(bends[:, output])
            for column, span in zip(codes, design.slices(), strict=True):
                sums[output, span] += np.bincount(column, weights, span.stop - span.start)
    return torch.from_numpy(sums)


def _chunks(
    design: Design,
    effects: NDArray[np.float64],
    intercepts: NDArray[np.float64],
    examples: Examples,
) -> Iterator[tuple[Columns, NDArray[np.float64], Tensor, NDArray[np.int64]]]:
    """Yield codes by block, outputs, targets and groups of some records at a time."""
    for start in range(0, len(examples), CODED_ROWS_PER_CHUNK):
        chunk = slice(start, start + CODED_ROWS_PER_CHUNK)
        codes = np.ascontiguousarray(examples.x[chunk].numpy().T).astype(np.int64)
        scores = np.tile(intercepts, (codes.shape[1], 1))
        for offset, column in zip(design.offsets, codes, strict=True):
            scores += effects[:, offset + column].T
        y = examples.y[chunk]
        yield (
            codes,
            scores,
            y.double() if y.is_floating_point() else y,
            examples.group[chunk].numpy(),
        )


def _add_gradients(
    gradients: NDArray[np.float64],
    design: Design,
    codes: Columns,
    group: NDArray[np.int64],
    slopes: NDArray[np.float64],
) -> None:
    groups = len(gradients)
    for output in range(slopes.shape[1]):
        slope = np.ascontiguousarray(slopes[:, output])
        gradients[:, output, -1] += np.bincount(group, slope, groups)
        for codes_of_block, span in zip(codes, design.slices(), strict=True):
            size = span.stop - span.start
            sums = np.bincount(group * size + codes_of_block, slope, groups * size)
            gradients[:, output, span] += sums.reshape(groups, size)


def _add_curvature(
    curvature: NDArray[np.float64], design: Design, codes: Columns, weights: NDArray[np.float64]
) -> None:
    """Add to the lower triangle; within a block only the diagonal is not 0."""
    spans = design.slices()
    curvature[-1, -1] += weights.sum()
    for number, (column, span) in enumerate(zip(codes, spans, strict=True)):
        size = span.stop - span.start
        sums = np.bincount(column, weights, size)
        diagonal = np.arange(span.start, span.stop)
        curvature[diagonal, diagonal] += sums
        curvature[-1, span] += sums
        for other, other_span in zip(codes[:number], spans, strict=False):
            width = other_span.stop - other_span.start
            cells = np.bincount(column * width + other, weights, size * width)
            curvature[span, other_span] += cells.reshape(size, width)


def _in_model_coordinates(design: Design, values: Tensor) -> Tensor:
    """Return sums over codes [..., columns + 1] as derivatives in phi and the intercept."""
    return torch.cat([design.transformed(values[..., :-1]), values[..., -1:]], dim=-1)


def _packed(design: Design, curvature: Tensor) -> Tensor:
    """Return the lower triangles [1, q] of second derivatives in phi and the intercepts."""
    if not len(curvature):
        return torch.zeros(1, 0, dtype=torch.float64)
    if not design.is_plain:
        full = curvature + curvature.tril(-1).transpose(1, 2)
        full = _in_model_coordinates(design, full)
        curvature = _in_model_coordinates(design, full.transpose(1, 2))
    rows, columns = torch.tril_indices(curvature.shape[1], curvature.shape[2])
    return curvature[:, rows, columns].reshape(1, -1)
