"""Which additive models to choose from: how strongly blocks are smoothed, and which pairs are in.

That is decided before any method trains, by rounds of the plain mean fit: smoothing
(``core.additive.smoothing``), then one round of sums over coarse cells for all pairs of columns,
then smoothing with the chosen pairs. Method and baseline then train in the same class of models,
and a certificate is about this class.

A pair's score is how much its cells could lower the loss, less what that many cells would lower it
by chance: sum G^2 / (H + 5) - cells - 3 sqrt(2 cells), with G the sum of slopes and H that of
second derivatives in a cell. Pairs with a positive score are taken from the top (Lou et al., KDD
2013, rank pairs by a fit on cells, too). Columns whose effect may only go up, or down, are in no
pair, and smoothing is chosen as if they could go both ways.

``class_rounds`` is a generator: it yields what to ask for, and is sent the totals over all sites.
At first all effects are 0, so that every record has the same second derivative: those first sums
are counts, of records by code and by pair of codes.
"""

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, combinations, pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedminmax.core.additive.effects import centred_effects, standard_errors
from fedminmax.core.additive.model import AdditiveModel, Block, Design, Pair
from fedminmax.core.additive.smoothing import (
    MeanSums,
    SmoothFit,
    after_smoothing_round,
    covariance,
    start_smoothing,
)
from fedminmax.core.additive.sums import coded_bends, coded_group_sums
from fedminmax.core.examples import Examples, concatenate
from fedminmax.core.linear_structure import LinearStructure

if TYPE_CHECKING:
    from fedminmax.data.tables.encoding import Encoding

MAX_ROUNDS = 10
# Smoothing without and with pairs, and the sums that pairs are chosen from.
MAX_QUESTIONS = 2 * MAX_ROUNDS + 1
CELLS = 12
# With one for missing values beside bins.
MOST_CELLS = CELLS + 1
# Pairs of more columns than this are not all tried: those with the largest effects are.
MAX_COLUMNS_OF_PAIRS = 20
# Added to the second derivatives of a cell: those of about twenty records.
PRIOR = 5.0
DIGITS = 3
DEVIATIONS = 3.0
# Smoothing of pairs, before any sums: that of a few dozen records in each cell.
START_OF_PAIRS, UPDATES_ALONE = 50.0, 20


@dataclass(frozen=True, eq=False)
class ClassQuestion:
    """What to ask of all sites: sums at a plain additive model with these pairs.

    Its parameters are effects, without smoothing. Sums are the loss and the gradient over all
    records, and if it is wanted the curvature; ``cells`` asks for second derivatives by code.
    """

    pairs: tuple[Pair, ...]
    parameters: Tensor
    curvature: bool = True
    cells: bool = False


@dataclass(frozen=True, eq=False)
class ClassTotals:
    """The totals: loss, a vector of slopes, and packed curvature or second derivatives by code."""

    loss: float
    slopes: Tensor
    bends: Tensor


@dataclass(frozen=True, eq=False)
class AdditiveClass:
    """The blocks with their smoothing, the pairs, the plain mean fit, and how many rounds it took.

    ``effects`` [outputs, columns] and ``intercepts`` [outputs] are those of the fit, ``counts``
    [columns] the records of each code, and ``standard_errors`` [scores, columns] those of the
    effects on scores (``core.additive.effects``).
    """

    blocks: tuple[Block, ...]
    pairs: tuple[Pair, ...]
    effects: Tensor
    intercepts: Tensor
    counts: Tensor
    standard_errors: Tensor
    rounds: int


ClassRounds = Generator[ClassQuestion, ClassTotals, AdditiveClass]


def class_structure(outputs: int, blocks: Sequence[Block], ridge: float) -> LinearStructure:
    """Return the layout of the plain mean fit, which has a likelihood or squared errors as loss."""
    return LinearStructure(
        outputs,
        sum(block.own.size for block in blocks),
        intercept=True,
        loss="squared_error" if outputs == 1 else "cross_entropy",
        ridge=ridge,
        coded=True,
    )


def class_rounds(
    structure: LinearStructure,
    blocks: Sequence[Block],
    records: int,
    *,
    max_pairs: int = 10,
    smoothness: float = 1.0,
) -> ClassRounds:
    """Choose smoothing and pairs; ``structure`` is that of the blocks without pairs."""
    start = start_smoothing(structure, blocks, records)
    first = yield ClassQuestion((), start.parameters)
    together = _records_together(structure, first, records)
    fit = after_smoothing_round(start, _mean_sums(start, first))
    fit = yield from _smoothing_rounds(fit, ())
    rounds = fit.rounds
    pairs: tuple[Pair, ...] = ()
    if max_pairs and len(blocks) > 1:
        candidates = _candidate_pairs(fit)
        matrix = structure.as_matrix(structure.from_free(fit.theta))
        totals = yield ClassQuestion(
            candidates, _padded(structure, matrix, candidates), curvature=False, cells=True
        )
        rounds += 1
        pairs = _chosen(fit, candidates, totals, max_pairs)
    if pairs:
        alone, pairs = pairs, tuple(replace(pair, smoothing=0.0) for pair in pairs)
        wider = replace(structure, inputs=structure.inputs + sum(p.block.size for p in pairs))
        padded = _padded(structure, structure.as_matrix(structure.from_free(fit.theta)), pairs)
        smoothed = [
            *(replace(b, smoothing=float(s)) for b, s in zip(blocks, fit.smoothing, strict=True)),
            *(pair.block for pair in alone),
        ]
        start = start_smoothing(wider, smoothed, records, theta=wider.to_free(padded))
        fit = yield from _smoothing_rounds(start, pairs)
        rounds += fit.rounds
    values = [_rounded(smoothness * value) for value in fit.smoothing.tolist()]
    matrix = fit.structure.as_matrix(fit.structure.from_free(fit.theta))
    plain = Design([replace(block, smoothing=0.0) for block in fit.blocks], records=1, ridge=0.0)
    counts = _counts(together, blocks, pairs)
    return AdditiveClass(
        tuple(replace(b, smoothing=v) for b, v in zip(fit.blocks, values, strict=True)),
        tuple(
            replace(pair, smoothing=value)
            for pair, value in zip(pairs, values[len(blocks) :], strict=True)
        ),
        plain.filled(matrix[:, :-1]),
        matrix[:, -1],
        counts,
        standard_errors(fit.structure, covariance(fit, _sums_of(fit)), fit.blocks, pairs, counts),
        rounds,
    )


def _smoothing_rounds(
    fit: SmoothFit, pairs: tuple[Pair, ...]
) -> Generator[ClassQuestion, ClassTotals, SmoothFit]:
    while not fit.settled and fit.rounds < MAX_ROUNDS:
        totals = yield ClassQuestion(pairs, fit.parameters, curvature=fit.wants_curvature)
        fit = after_smoothing_round(fit, _mean_sums(fit, totals))
    return fit


def _mean_sums(fit: SmoothFit, totals: ClassTotals) -> MeanSums:
    structure = fit.structure
    if fit.wants_curvature:
        curvature = structure.free_curvature(totals.bends.reshape(1, -1))[0]
    else:
        curvature = _sums_of(fit).curvature
    return MeanSums(fit.theta, totals.loss, structure.to_free(totals.slopes), curvature)


def _records_together(structure: LinearStructure, first: ClassTotals, records: int) -> Tensor:
    """Return how many records have two codes together [columns, columns], from sums at zeros."""
    columns = structure.columns
    lower = first.bends.flatten()[: columns * (columns + 1) // 2]
    matrix = lower.new_zeros(columns, columns)
    rows, others = torch.tril_indices(columns, columns)
    matrix[rows, others] = lower
    matrix[others, rows] = lower
    return (matrix * (records / float(matrix[-1, -1]))).round()


def _counts(together: Tensor, blocks: Sequence[Block], pairs: Sequence[Pair]) -> Tensor:
    """Return the records of each code, those of pairs last; between nodes as if evenly spread."""
    spans = [slice(*e) for e in pairwise(accumulate((b.own.size for b in blocks), initial=0))]
    shares = [block.line_shares() for block in blocks]
    spreads = [own / own.sum(dim=0) for own in shares]
    parts = [spread @ together[-1, span] for spread, span in zip(spreads, spans, strict=True)]
    for pair in pairs:
        first, second = pair.first, pair.second
        cells = torch.tensor(pair.first_cells)[:, None] * pair.width + torch.tensor(
            pair.second_cells
        )
        by_code = spreads[first] @ together[spans[first], spans[second]] @ spreads[second].T
        counts = together.new_zeros(pair.block.size)
        parts.append(counts.index_add_(0, cells.flatten(), by_code.flatten()))
    return torch.cat(parts)


def _sums_of(fit: SmoothFit) -> MeanSums:
    if fit.best is None:
        raise ValueError("there are no sums yet")
    return fit.best


def _padded(structure: LinearStructure, matrix: Tensor, pairs: Sequence[Pair]) -> Tensor:
    """Return effects and intercepts [C, k] as parameters of a model that has these pairs, too."""
    cells = sum(pair.block.size for pair in pairs)
    wider = replace(structure, inputs=structure.inputs + cells)
    none = matrix.new_zeros(len(matrix), cells)
    return wider.as_flat(torch.cat([matrix[:, :-1], none, matrix[:, -1:]], dim=1))


def _candidate_pairs(fit: SmoothFit) -> tuple[Pair, ...]:
    """Return all pairs of the columns with the largest effects, in coarse cells."""
    structure, sums = fit.structure, _sums_of(fit)
    columns = structure.columns
    weights = sums.curvature[columns - 1, : columns - 1]
    effects = structure.as_matrix(structure.from_free(fit.theta))[:, :-1]
    sizes = [block.own.size for block in fit.blocks]
    parts = list(zip(torch.split(effects, sizes, dim=1), torch.split(weights, sizes), strict=True))
    importance = torch.tensor([_spread(*part) for part in parts])
    ranked = torch.sort(importance, descending=True, stable=True).indices.tolist()
    # A pair could turn an effect that may only go up.
    largest = [number for number in ranked if not fit.blocks[number].rising][:MAX_COLUMNS_OF_PAIRS]
    cells = [_coarse_cells(block, *part) for block, part in zip(fit.blocks, parts, strict=True)]
    return tuple(
        Pair(first, second, cells[first], cells[second])
        for first, second in combinations(sorted(largest), 2)
    )


def _spread(effects: Tensor, weights: Tensor) -> float:
    mean = (effects @ weights) / weights.sum().clamp(min=1e-300)
    return float(((effects - mean[:, None]).square() @ weights).sum())


def _coarse_cells(block: Block, effects: Tensor, weights: Tensor) -> tuple[int, ...]:
    """Return a cell for each code: codes in order of bins, or of effects, in parts of equal weight.

    With several outputs, codes are in the order of the output whose effects differ most. Codes
    beside bins in order, of missing values, have cells of their own. A code between nodes is in
    the cell of the nearer one.
    """
    if block.nodes:
        of_nodes = _coarse_cells(block.own, effects, weights)
        return tuple(of_nodes[node] for node in block.line_shares().argmax(dim=1).tolist())
    if block.size <= CELLS:
        return tuple(range(block.size))
    beside = block.size - block.ordered if block.ordered else 0
    weights = weights[: block.size - beside]
    order = torch.arange(len(weights))
    if not block.ordered:
        output = int((effects - effects.mean(dim=1, keepdim=True)).square().sum(dim=1).argmax())
        # Rounded, so that codes in the last digits of a sum do not change places.
        order = torch.sort(effects[output].round(decimals=9), stable=True).indices
    sorted_weights = weights[order]
    total = sorted_weights.sum().clamp(min=1e-300)
    middle = (sorted_weights.cumsum(0) - 0.5 * sorted_weights) / total
    parts = CELLS - beside
    part = (middle * parts).floor().clamp(max=parts - 1)
    _, number = torch.unique(part, return_inverse=True)
    cells = torch.empty(len(weights), dtype=torch.int64)
    cells[order] = number
    first = int(number.max()) + 1
    return (*cells.tolist(), *range(first, first + beside))


def _chosen(
    fit: SmoothFit, candidates: Sequence[Pair], totals: ClassTotals, most: int
) -> tuple[Pair, ...]:
    """Return the pairs with the highest positive scores, in the order of their columns."""
    structure, sums = fit.structure, _sums_of(fit)
    sizes = [pair.block.size for pair in candidates]
    outputs = structure.outputs
    wider = replace(structure, inputs=structure.inputs + sum(sizes))
    by_code = (wider.as_matrix(totals.slopes)[:, :-1], totals.bends.reshape(outputs, -1))
    slopes, bends = (torch.split(values[:, structure.inputs :], sizes, dim=1) for values in by_code)
    # Squared errors have twice the error variance as unit of their loss.
    unit = 2.0 * sums.loss / fit.records if structure.loss == "squared_error" else 1.0
    free = max(outputs - 1, 1)
    scores = [
        free / outputs * float((slope.square() / (bend + PRIOR)).sum()) / max(unit, 1e-300)
        - _by_chance(free * int((bend[0] > 0).sum()))
        for slope, bend in zip(slopes, bends, strict=True)
    ]
    ranked = sorted(range(len(scores)), key=lambda number: -round(scores[number], 6))
    taken = sorted(number for number in ranked[:most] if scores[number] > 0)
    return tuple(
        replace(candidates[number], smoothing=_smoothing_alone(slopes[number], bends[number], unit))
        for number in taken
    )


def _smoothing_alone(slopes: Tensor, bends: Tensor, unit: float) -> float:
    """Return how strongly a pair's effects are smoothed if all others stay as they are."""
    smoothing = START_OF_PAIRS
    for _ in range(UPDATES_ALONE):
        squares = float((slopes / (bends + smoothing)).square().sum())
        freedom = float((bends / (bends + smoothing)).sum())
        smoothing = min(max(unit * freedom / max(squares, 1e-300), 1.0), 1e4)
    return smoothing


def _by_chance(cells: int) -> float:
    """Return what so many cells lower the loss by, by chance, in nearly all of many pairs.

    Twice that is distributed as chi squared, whose deviation is the root of twice the cells.
    """
    return cells + DEVIATIONS * math.sqrt(2.0 * cells)


def _rounded(value: float) -> float:
    """Round to a few digits: the order in which sites were added must not matter."""
    return float(f"{value:.{DIGITS}g}")


def encoding_of_class(encoding: "Encoding", chosen: AdditiveClass, *, network: bool) -> "Encoding":
    """Return the encoding with the chosen smoothing and pairs, and what the plain fit shows."""
    # Estimators have no tables.
    from fedminmax.data.tables.encoding import with_smoothing
    from fedminmax.data.tables.plain_fit import inputs_of, plain_fit

    values = [block.smoothing for block in chosen.blocks]
    smoothed = with_smoothing(encoding, values, chosen.pairs)
    fit = plain_fit(
        chosen.blocks, chosen.counts.tolist(), chosen.standard_errors.tolist(), chosen.rounds
    )
    smoothed = replace(smoothed, plain_fit=fit)
    if not network:
        return smoothed
    sizes = [block.size for block in chosen.blocks]
    centred = centred_effects(chosen.effects, chosen.intercepts, sizes, (), chosen.counts)
    return replace(smoothed, inputs=inputs_of(chosen.blocks, centred.effects, chosen.counts))


def choose_class(
    sites: Sequence[Examples],
    structure: LinearStructure,
    blocks: Sequence[Block],
    *,
    max_pairs: int = 10,
    smoothness: float = 1.0,
) -> AdditiveClass:
    """Choose the class for sites in the memory of this process, whose x are codes."""
    records = sum(map(len, sites))
    rounds = class_rounds(structure, blocks, records, max_pairs=max_pairs, smoothness=smoothness)
    question = next(rounds)
    # Sums over sites are sums over all of their records.
    pooled = concatenate([rows for rows in sites if len(rows)])
    while True:
        try:
            question = rounds.send(class_sums(structure, blocks, question, pooled))
        except StopIteration as finished:
            chosen: AdditiveClass = finished.value
            return chosen


def class_sums(
    structure: LinearStructure, blocks: Sequence[Block], question: ClassQuestion, rows: Examples
) -> ClassTotals:
    """Return one site's answer; its codes are those without pairs."""
    plain = [replace(block, smoothing=0.0) for block in blocks]
    plain += [pair.block for pair in question.pairs]
    model = AdditiveModel(structure.outputs, plain, records=1, ridge=0.0)
    wide = replace(structure, inputs=model.design.columns)
    together = replace(rows, group=rows.group.new_zeros(1).expand(len(rows)))
    weights = torch.ones(1, dtype=torch.float64) if question.curvature else None
    sums = coded_group_sums(
        wide,
        model.design,
        question.parameters,
        together,
        1,
        group_weights=weights,
        pairs=question.pairs,
    )
    bends = sums.curvature[0]
    if question.cells:
        bends = coded_bends(
            wide, model.design, question.parameters, rows, pairs=question.pairs
        ).flatten()
    return ClassTotals(float(sums.losses.sum()), sums.gradients[0], bends)
