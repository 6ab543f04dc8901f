"""Sums by group over coded records: histograms instead of matrix products.

A record has one code in each of F blocks. So gradients are histograms of slopes by group and code,
and curvature is a histogram for each pair of blocks: F (F + 1) / 2 additions per record, whatever
the number of codes (Wood, Li, Shaddick, Augustin: Generalized additive models for gigadata, JASA
2017). A linear model of the codes' indicators has the same sums (``core.one_step``).

Curvature is one matrix: that of the weighted sum of the groups' losses, with a weight for each
group that the server chooses. Its second derivatives in the outputs are as in ``core.one_step``.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import iadd

import torch
from torch import Tensor

from fedminmax.core.additive.model import Design, Pair, codes_with_pairs
from fedminmax.core.examples import Examples
from fedminmax.core.linear_structure import LinearStructure
from fedminmax.core.losses import LOSSES_BY_NAME, LOSSES_WITH_GRADIENTS, chances_of
from fedminmax.core.one_step import CODED_ROWS_PER_CHUNK, GroupSums, equal_parts, pair_weights
from fedminmax.core.workspace import run_in_parallel

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
    pairs: Sequence[Pair] = (),
) -> GroupSums:
    """Return losses and gradients by group, and one curvature if groups have weights.

    All are in the model's coordinates. Without ``group_weights`` [A] the curvature is empty.
    Records have the codes of the design's first blocks; ``pairs`` are the last ones.
    """
    outputs, columns = structure.outputs, design.columns
    free = max(outputs - 1, 1)
    blocks = structure.blocks if group_weights is not None else 0
    with_gradient = LOSSES_WITH_GRADIENTS[LOSSES_BY_NAME[structure.loss]]
    effects = _effects(structure, design, parameters)

    def add_up(chunks: Iterator[_Chunk]) -> list[Tensor]:
        losses = torch.zeros(groups, dtype=torch.float64)
        gradients = torch.zeros(groups, outputs, columns + 1, dtype=torch.float64)
        curvature = torch.zeros(blocks, columns + 1, columns + 1, dtype=torch.float64)
        for chunk in chunks:
            scores = _scores(effects, design, chunk.codes)
            record_losses, slopes = with_gradient(scores, chunk.y)
            losses += torch.bincount(chunk.group, record_losses, groups)
            for output, slope in enumerate(slopes.T[:free].contiguous()):
                _add_gradients(gradients[:, output], design, chunk, slope)
            if group_weights is not None:
                weights = pair_weights(structure, scores) * group_weights[chunk.group][:, None]
                for block, weight in enumerate(weights.T.contiguous()):
                    _add_curvature(curvature[block], design, chunk, weight)
        return [losses, gradients, curvature]

    losses, gradients, curvature = _in_threads(add_up, examples, pairs)
    # A record's slopes in the outputs of classes add up to 0.
    gradients[:, free:] = -gradients[:, :free].sum(dim=1, keepdim=True)
    return GroupSums(
        losses,
        structure.as_flat(_in_model_coordinates(design, gradients)),
        _packed(design, curvature),
    )


def coded_bends(
    structure: LinearStructure,
    design: Design,
    parameters: Tensor,
    examples: Examples,
    *,
    pairs: Sequence[Pair] = (),
) -> Tensor:
    """Return second derivatives in each output, summed by code [outputs, columns].

    Those of one output are p (1 - p) of its class; 2 for squared errors. Codes between nodes are
    shared out among these.
    """
    effects = _effects(structure, design, parameters)

    def add_up(chunks: Iterator[_Chunk]) -> list[Tensor]:
        sums = torch.zeros(structure.outputs, design.columns, dtype=torch.float64)
        for chunk in chunks:
            scores = _scores(effects, design, chunk.codes)
            if structure.loss == "squared_error":
                bends = torch.full_like(scores, 2.0)
            else:
                chances = chances_of(scores)
                bends = chances * (1.0 - chances)
            for own, weights in zip(sums, bends.T.contiguous(), strict=True):
                for number, span in enumerate(design.slices()):
                    by_code = torch.bincount(chunk.codes[number], weights, design.sizes[number])
                    own[span] += _own_sums(by_code, design.fills[number])
        return [sums]

    (sums,) = _in_threads(add_up, examples, pairs)
    return sums


@dataclass(frozen=True, eq=False)
class _Chunk:
    """Some records: codes by block [blocks, n], targets and groups."""

    codes: Tensor
    y: Tensor
    group: Tensor


def _in_threads(
    add_up: Callable[[Iterator[_Chunk]], list[Tensor]], examples: Examples, pairs: Sequence[Pair]
) -> list[Tensor]:
    """Return the sums of an equal part of the records in each thread, added in their order."""
    threads = torch.get_num_threads() if len(examples) >= MIN_RECORDS_OF_THREADS else 1
    parts = equal_parts(len(examples), threads)
    sums = run_in_parallel(threads, lambda worker: add_up(_chunks(examples, parts[worker], pairs)))
    return [reduce(iadd, own) for own in zip(*sums, strict=True)]


def _chunks(examples: Examples, part: slice, pairs: Sequence[Pair]) -> Iterator[_Chunk]:
    for start in range(part.start, part.stop, CODED_ROWS_PER_CHUNK):
        rows = slice(start, min(start + CODED_ROWS_PER_CHUNK, part.stop))
        y = examples.y[rows]
        yield _Chunk(
            codes_with_pairs(examples.x[rows], pairs).T.contiguous().int(),
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
    """Return the outputs of these records [n, outputs], each output stored by itself."""
    scores = effects[:, -1:].repeat(1, codes.shape[1])
    for own, score in zip(effects, scores, strict=True):
        for column, span in zip(codes, design.code_slices(), strict=True):
            score += own[span].index_select(0, column)
    return scores.T


def _add_gradients(gradients: Tensor, design: Design, chunk: _Chunk, slope: Tensor) -> None:
    """Add to the gradients of one output [groups, columns + 1]."""
    groups, group = len(gradients), chunk.group.int()
    gradients[:, -1] += torch.bincount(group, slope, groups)
    for number, span in enumerate(design.slices()):
        size = design.sizes[number]
        cells = torch.add(chunk.codes[number], group, alpha=size)
        by_code = torch.bincount(cells, slope, groups * size).view(groups, size)
        gradients[:, span] += _own_sums(by_code, design.fills[number])


def _add_curvature(curvature: Tensor, design: Design, chunk: _Chunk, weight: Tensor) -> None:
    """Add to the lower triangle; within a block without nodes only the diagonal is not 0."""
    spans, sizes, codes, fills = design.slices(), design.sizes, chunk.codes, design.fills
    curvature[-1, -1] += weight.sum()
    for number, (span, size, fill) in enumerate(zip(spans, sizes, fills, strict=True)):
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


def _in_model_coordinates(design: Design, values: Tensor) -> Tensor:
    """Return derivatives in own effects and intercept [..., columns + 1] as such in phi."""
    return torch.cat([design.transformed(values[..., :-1]), values[..., -1:]], dim=-1)


def curvature_places(design: Design, pairs: Sequence[Pair]) -> Tensor:
    """Return which numbers of a packed curvature some record can make other than 0 [q].

    No record has two codes of one block, or a cell of a pair and a code that is not in it. In phi,
    or between nodes, an effect is of all codes of its block. ``pairs`` are the last blocks.
    """
    size = design.columns + 1
    mixed = [
        fill is not None or transform.dim() > 0
        for fill, transform in zip(design.fills, design.transforms, strict=True)
    ]
    places, spans = torch.ones(size, size, dtype=torch.bool), design.slices()
    for span, is_mixed, width in zip(spans, mixed, design.widths, strict=True):
        if not is_mixed:
            places[span, span] = torch.eye(width, dtype=torch.bool)
    columns = len(spans) - len(pairs)
    halves = [_halves(pair) for pair in pairs]
    for number, own in enumerate(halves, columns):
        for column, (of_codes, cells) in own.items():
            if not mixed[column]:
                places[spans[number], spans[column]] &= cells[:, None] == of_codes
            for other, earlier in enumerate(halves[: number - columns], columns):
                if column in earlier:
                    of_codes_too, cells_too = earlier[column]
                    together = torch.zeros(len(cells), len(cells_too), dtype=torch.bool)
                    together[of_codes, of_codes_too] = True
                    places[spans[number], spans[other]] &= together[cells][:, cells_too]
    return places.masked_select(torch.ones_like(places).tril())


def _halves(pair: Pair) -> dict[int, tuple[Tensor, Tensor]]:
    """Return, for each column of a pair, the part of its codes and of the pair's cells."""
    cell = torch.arange(pair.block.size)
    return {
        pair.first: (torch.tensor(pair.first_cells), cell // pair.width),
        pair.second: (torch.tensor(pair.second_cells), cell % pair.width),
    }


def _packed(design: Design, curvature: Tensor) -> Tensor:
    """Return the lower triangles [1, q] of second derivatives in phi and the intercepts."""
    if not len(curvature):
        return torch.zeros(1, 0, dtype=torch.float64)
    if not design.is_plain:
        curvature += curvature.tril(-1).transpose(1, 2)
        scales = curvature.new_ones(curvature.shape[1])
        for span, transform in zip(design.slices(), design.transforms, strict=True):
            if transform.dim():
                curvature[:, :, span] = curvature[:, :, span] @ transform
                curvature[:, span] = transform @ curvature[:, span]
            else:
                scales[span] = transform
        curvature *= scales
        curvature *= scales[:, None]
    lower = torch.ones_like(curvature[0], dtype=torch.bool).tril()
    return curvature.masked_select(lower)[None]
