"""How strongly to smooth each block of an additive model, chosen from sums that a server has.

Given loss, gradient and curvature sums of the plain mean fit at some effects, the penalised loss
is a quadratic there. Its minimum and the smoothing that is right for it are found in turns, by
Fellner and Schall's update (Wood, Fasiolo: A generalized Fellner-Schall method for smoothing
parameter optimization, Biometrics 2017):

    lambda_b <- lambda_b phi (rank_b / lambda_b - tr(V S_b)) / (theta' S_b theta),  V = (H + S)^-1,

with phi = 1 for a likelihood, and twice the error variance for squared errors; for bends in few
records up to twice as much. The next round's sums are taken at that minimum (Gu: Cross-validating
non-Gaussian data, 1992, calls this performance iteration). A handful of rounds suffice. All sums
here are totals over records.

| symbol    | name               |
|-----------|--------------------|
| theta     | SmoothFit.theta    |
| lambda    | SmoothFit.smoothing |
| S_b       | model.roughness |
| H, g      | MeanSums           |
| phi V     | covariance         |
"""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace

import torch
from torch import Tensor

from fedminmax.core.additive.model import Block, fixed_roughness, roughness
from fedminmax.core.linear_structure import LinearStructure

MIN_SMOOTHING, MAX_SMOOTHING = 1e-3, 1e8
CAUTIOUS_RECORDS = 1_000.0
# One update changes smoothing by at most this factor.
LARGEST_CHANGE = 30.0
# Updates in a round: each costs a factorisation of all parameters, which is small for few.
UPDATES_PER_ROUND, FEW_UPDATES, MANY_PARAMETERS = 12, 5, 1_200
# Of class counts by code, in proportion to all records' shares.
PRIOR_RECORDS = 5.0
# Of the degrees of freedom, and of the penalised loss: smaller relative changes end the rounds.
SETTLED_SMOOTHING, SETTLED_LOSS = 0.1, 3e-3


@dataclass(frozen=True, eq=False)
class MeanSums:
    """Totals at some effects: loss, gradient [f] and curvature [f, f], in free parameters."""

    theta: Tensor
    loss: float
    gradient: Tensor
    curvature: Tensor


@dataclass(frozen=True, eq=False)
class SmoothFit:
    """The next effects to try, the best so far with its sums, and the smoothing of each block.

    ``records`` is n, ``freedom`` are the effective degrees of freedom that smoothing left to each
    block in its last update, and ``moved`` how much these changed in the last round, relatively.
    """

    structure: LinearStructure
    blocks: tuple[Block, ...]
    _: KW_ONLY
    records: int
    theta: Tensor
    smoothing: Tensor
    freedom: Tensor
    best: MeanSums | None = None
    moved: float = math.inf
    settled: bool = False
    rounds: int = 0

    @property
    def parameters(self) -> Tensor:
        """The effects and intercepts to try next, in the model's order."""
        return self.structure.from_free(self.theta)


def start_smoothing(
    structure: LinearStructure,
    blocks: Sequence[Block],
    records: int,
    *,
    theta: Tensor | None = None,
) -> SmoothFit:
    """Begin with these effects, or zeros, and the blocks' smoothing, or 1 where it is not set."""
    zeros = torch.zeros(structure.free_numbers, dtype=torch.float64)
    smoothing = torch.tensor([block.smoothing or 1.0 for block in blocks], dtype=torch.float64)
    return SmoothFit(
        structure,
        tuple(blocks),
        records=records,
        theta=zeros if theta is None else theta,
        smoothing=smoothing,
        freedom=torch.full_like(smoothing, math.inf),
    )


def after_smoothing_round(fit: SmoothFit, sums: MeanSums) -> SmoothFit:
    """Return the next effects and smoothing, given the sums at the effects that were tried."""
    rounds = fit.rounds + 1
    if fit.best is not None:
        penalty = penalty_matrix(fit)
        before, now = _penalised(fit.best, penalty), _penalised(sums, penalty)
        if not now <= before + 1e-9 * abs(before):
            halfway = 0.5 * (fit.theta + fit.best.theta)
            return replace(fit, theta=halfway, rounds=rounds)
        close = before - now <= SETTLED_LOSS * abs(before)
        if close and fit.moved <= SETTLED_SMOOTHING:
            return replace(fit, best=sums, settled=True, rounds=rounds)
    starts = fit.best is None and not bool(fit.theta.any())
    fit = replace(fit, best=sums, rounds=rounds)
    first, updates = fit.freedom, UPDATES_PER_ROUND
    if fit.structure.free_numbers > MANY_PARAMETERS:
        updates = FEW_UPDATES
    for _ in range(updates):
        before_update = fit.freedom
        fit = _updated(fit, sums)
        if _change(before_update, fit.freedom) <= 0.1 * SETTLED_SMOOTHING:
            break
    if starts and fit.structure.loss == "cross_entropy":
        fit = replace(fit, theta=_from_counts(fit, sums))
    return replace(fit, moved=_change(first, fit.freedom))


def penalty_matrix(fit: SmoothFit) -> Tensor:
    """Return S [f, f]: smoothing, and the ridge that all parameters have."""
    columns, start = fit.structure.columns, 0
    single = torch.zeros(columns, columns, dtype=torch.float64)
    single.diagonal().add_(fit.records * fit.structure.ridge)
    for block, smoothing in zip(fit.blocks, fit.smoothing.tolist(), strict=True):
        span = slice(start, start + block.size)
        single[span, span] += smoothing * roughness(block)
        single[span, span] += fixed_roughness(replace(block, smoothing=smoothing)).diag()
        start += block.size
    outputs = fit.structure.free_numbers // columns
    return torch.kron(torch.eye(outputs, dtype=torch.float64), single)


def covariance(fit: SmoothFit, sums: MeanSums) -> Tensor:
    """Return phi V, of the effects that were fitted with these sums."""
    factor = torch.linalg.cholesky(sums.curvature + penalty_matrix(fit))
    inverse = torch.cholesky_inverse(factor)
    return inverse * _dispersion(fit, sums, sums.theta, inverse)


def _updated(fit: SmoothFit, sums: MeanSums) -> SmoothFit:
    """Minimise the penalised quadratic, then update smoothing."""
    penalty = penalty_matrix(fit)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(sums.curvature + penalty))
    theta = sums.theta - inverse @ (sums.gradient + penalty @ sums.theta)
    columns = fit.structure.columns
    by_output = theta.reshape(-1, columns)
    outputs = len(by_output)
    diagonals = [
        inverse[start : start + columns, start : start + columns]
        for start in range(0, outputs * columns, columns)
    ]
    scale, caution = _dispersion(fit, sums, theta, inverse), _caution(fit.records)
    smoothing, freedoms, start = fit.smoothing.clone(), torch.zeros_like(fit.smoothing), 0
    for number, block in enumerate(fit.blocks):
        span, shape = slice(start, start + block.size), roughness(block)
        start += block.size
        if block.rank == 0:
            continue
        before = float(fit.smoothing[number])
        effects = by_output[:, span]
        trace = sum(float((matrix[span, span] * shape).sum()) for matrix in diagonals)
        freedom = max(outputs * block.rank / before - trace, 1e-12)
        freedoms[number] = before * freedom
        squares = max(float(((effects @ shape) * effects).sum()), 1e-300)
        factor = (caution if block.ordered else 1.0) * scale * freedom / squares
        factor = min(max(factor, 1.0 / LARGEST_CHANGE), LARGEST_CHANGE)
        smoothing[number] = min(max(before * factor, MIN_SMOOTHING), MAX_SMOOTHING)
    return replace(fit, theta=theta, smoothing=smoothing, freedom=freedoms)


def _from_counts(fit: SmoothFit, sums: MeanSums) -> Tensor:
    """Return better effects than those of a first step from zeros, which are too small.

    Sums at zeros tell how many records of each class have a code. Each block's effects are the log
    odds of its codes alone, smoothed, times the share of the block's own first step, as if it were
    the only one, that is left in the first step of all blocks together.
    """
    structure, outputs = fit.structure, fit.structure.outputs
    columns = structure.columns
    records = outputs * sums.curvature.diagonal()[:columns]
    counts = records / outputs - structure.basis @ sums.gradient.reshape(-1, columns)
    shares = (counts[:, -1:] / records[-1]).clamp(min=1e-6)
    chances = (counts + PRIOR_RECORDS * shares) / (records + PRIOR_RECORDS)
    odds = chances.log() - shares.log()
    odds = odds - odds.mean(dim=0)
    alone, together = outputs * (chances - shares), structure.basis @ fit.theta.reshape(-1, columns)
    effects, start = torch.zeros_like(together), 0
    for block, smoothing in zip(fit.blocks, fit.smoothing.tolist(), strict=True):
        span = slice(start, start + block.size)
        start += block.size
        products = records[span] * alone[:, span]
        squares = float((products * alone[:, span]).sum())
        left = float((products * together[:, span]).sum()) / max(squares, 1e-300)
        bends = (counts[:, span] * (1.0 - chances[:, span])).mean(dim=0).clamp(min=1e-9)
        smooth = torch.linalg.solve(
            bends.diag() + smoothing * roughness(block), (bends * odds[:, span]).T
        )
        effects[:, span] = min(max(left, 0.0), 1.5) * smooth.T
    effects[:, -1:] = shares.log() - shares.log().mean()
    return (structure.basis.T @ effects).flatten()


def _dispersion(fit: SmoothFit, sums: MeanSums, theta: Tensor, inverse: Tensor) -> float:
    """Return phi: 1 for a likelihood, twice the error variance for squared errors."""
    if fit.structure.loss != "squared_error":
        return 1.0
    step = theta - sums.theta
    squares = sums.loss + float(sums.gradient @ step + 0.5 * step @ (sums.curvature @ step))
    used = float((inverse * sums.curvature).sum())
    return 2.0 * max(squares, 1e-300) / max(fit.records - used, 1.0)


def _caution(records: int) -> float:
    """Return as if how many times as much records varied, for bends: up to twice if there are few.

    In doubt, effects of numbers are then straighter (Wood: Generalized Additive Models, 2017,
    section 6.2.4).
    """
    return 1.0 + min(1.0, CAUTIOUS_RECORDS / records)


def _penalised(sums: MeanSums, penalty: Tensor) -> float:
    return sums.loss + 0.5 * float(sums.theta @ (penalty @ sums.theta))


def _change(before: Tensor, now: Tensor) -> float:
    """Return the largest relative change of a block's degrees of freedom."""
    changes = (now - before).abs() / (1.0 + now)
    return float(changes.max())
