"""Sums by group over coded records: histograms instead of matrix products.

A record has one code in each of F blocks. So gradients are histograms of slopes by group and code,
and curvature is a histogram for each pair of blocks: F (F + 1) / 2 additions per record, whatever
the number of codes (Wood, Li, Shaddick, Augustin: Generalized additive models for gigadata, JASA
2017). A linear model of the codes' indicators has the same sums (``core.group_sums``).

Curvature is one matrix: that of the weighted sum of the groups' losses, with a weight for each
group that the server chooses. Its second derivatives in the outputs are as in ``core.group_sums``.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from fedminmax.core.additive.model import Design
from fedminmax.core.examples import Examples
from fedminmax.core.group_sums import CODED_ROWS_PER_CHUNK, GroupSums, pair_weights
from fedminmax.core.linear_structure import LinearStructure
from fedminmax.core.losses import LOSSES_BY_NAME, LOSSES_WITH_GRADIENTS
from fedminmax.core.workers import worker_pool

# Threads take turns at fewer records than this for longer than they add.
MIN_RECORDS_OF_THREADS = 2**14


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
    outputs, columns = structure.outputs, design.columns
    losses = torch.zeros(groups, dtype=torch.float64)
    gradients = torch.zeros(groups, outputs, columns + 1, dtype=torch.float64)
    blocks = structure.blocks if group_weights is not None else 0
    curvature = torch.zeros(blocks, columns + 1, columns + 1, dtype=torch.float64)
    with_gradient = LOSSES_WITH_GRADIENTS[LOSSES_BY_NAME[structure.loss]]
    effects = _effects(structure, design, parameters)
    threads = torch.get_num_threads() if len(examples) >= MIN_RECORDS_OF_THREADS else 1
    with worker_pool(threads) if threads > 1 else nullcontext() as pool:
        for chunk in _chunks(examples):
            scores = _scores(effects, design, chunk.codes)
            record_losses, slopes = with_gradient(scores, chunk.y)
            losses += torch.bincount(chunk.group, record_losses, groups)
            for output, slope in enumerate(slopes.T.contiguous()):
                _add_gradients(gradients[:, output], design, chunk, slope, pool)
            if group_weights is not None:
                weights = pair_weights(structure, scores) * group_weights[chunk.group][:, None]
                for block, weight in enumerate(weights.T.contiguous()):
                    _add_curvature(curvature[block], design, chunk, weight, pool)
    return GroupSums(
        losses,
        structure.as_flat(_in_model_coordinates(design, gradients)),
        _packed(design, curvature),
    )


def coded_bends(
    structure: LinearStructure, design: Design, parameters: Tensor, examples: Examples
) -> Tensor:
    """Return second derivatives in each output, summed by code [outputs, columns].

    Those of one output are p (1 - p) of its class; 2 for squared errors. Codes between nodes are
    shared out among these.
    """
    effects = _effects(structure, design, parameters)
    sums = torch.zeros(structure.outputs, design.columns, dtype=torch.float64)
    for chunk in _chunks(examples):
        scores = _scores(effects, design, chunk.codes)
        if structure.loss == "squared_error":
            bends = torch.full_like(scores, 2.0)
        else:
            chances = torch.softmax(scores, dim=1)
            bends = chances * (1.0 - chances)
        for own, weights in zip(sums, bends.T.contiguous(), strict=True):
            for number, span in enumerate(design.slices()):
                by_code = torch.bincount(chunk.codes[number], weights, design.sizes[number])
                own[span] += _own_sums(by_code, design.fills[number])
    return sums


@dataclass(frozen=True, eq=False)
class _Chunk:
    """Some records: codes by block [blocks, n], targets and groups."""

    codes: Tensor
    y: Tensor
    group: Tensor


def _chunks(examples: Examples) -> Iterator[_Chunk]:
    for start in range(0, len(examples), CODED_ROWS_PER_CHUNK):
        rows = slice(start, start + CODED_ROWS_PER_CHUNK)
        y = examples.y[rows]
        yield _Chunk(
            examples.x[rows].T.contiguous().int(),
            y.double() if y.is_floating_point() else y,
            examples.group[rows],
        )


def _effects(structure: LinearStructure, design: Design, parameters: Tensor) -> Tensor:
    """Return the effects of all codes and intercepts [outputs, codes + 1]."""
    matrix = structure.as_matrix(parameters.detach().double())
    own = design.transformed(matrix[:, :-1])
    return torch.cat([design.filled(own), matrix[:, -1:]], dim=-1)


def _own_sums(by_code: Tensor, fill: Tensor | None) -> Tensor:
    """Return sums by code [..., codes] as derivatives in the effects of nodes."""
    return by_code if fill is None else by_code @ fill


def _scores(effects: Tensor, design: Design, codes: Tensor) -> Tensor:
    """Return the outputs of these records [n, outputs]."""
    scores = effects[:, -1:].repeat(1, codes.shape[1])
    for own, score in zip(effects, scores, strict=True):
        for column, span in zip(codes, design.code_slices(), strict=True):
            score += own[span].index_select(0, column)
    return scores.T.contiguous()


def _add_gradients(
    gradients: Tensor,
    design: Design,
    chunk: _Chunk,
    slope: Tensor,
    pool: ThreadPoolExecutor | None,
) -> None:
    """Add to the gradients of one output [groups, columns + 1]."""
    groups, spans, group = len(gradients), design.slices(), chunk.group.int()
    gradients[:, -1] += torch.bincount(group, slope, groups)

    def add(number: int) -> None:
        span, size = spans[number], design.sizes[number]
        cells = torch.add(chunk.codes[number], group, alpha=size)
        by_code = torch.bincount(cells, slope, groups * size).view(groups, size)
        gradients[:, span] += _own_sums(by_code, design.fills[number])

    _for_each_block(add, len(spans), pool)


def _add_curvature(
    curvature: Tensor,
    design: Design,
    chunk: _Chunk,
    weight: Tensor,
    pool: ThreadPoolExecutor | None,
) -> None:
    """Add to the lower triangle; within a block without nodes only the diagonal is not 0."""
    spans, sizes, codes, fills = design.slices(), design.sizes, chunk.codes, design.fills
    curvature[-1, -1] += weight.sum()

    def add(number: int) -> None:
        span, size, fill = spans[number], sizes[number], fills[number]
        sums = torch.bincount(codes[number], weight, size)
        if fill is None:
            curvature.diagonal()[span] += sums
        else:
            curvature[span, span] += ((fill.T * sums) @ fill).tril()
        curvature[-1, span] += _own_sums(sums, fill)
        for other in range(number):
            cells = torch.add(codes[other], codes[number], alpha=sizes[other])
            sums = torch.bincount(cells, weight, size * sizes[other]).view(size, -1)
            sums = sums if fill is None else fill.T @ sums
            curvature[span, spans[other]] += _own_sums(sums, fills[other])

    _for_each_block(add, len(spans), pool)


def _for_each_block(
    add: Callable[[int], None], blocks: int, pool: ThreadPoolExecutor | None
) -> None:
    """Call for every block, the last ones first: they have the most pairs."""
    order = reversed(range(blocks))
    for _ in map(add, order) if pool is None else pool.map(add, order):
        pass


def _in_model_coordinates(design: Design, values: Tensor) -> Tensor:
    """Return derivatives in own effects and intercept [..., columns + 1] as such in phi."""
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
