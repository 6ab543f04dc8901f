"""How strongly to smooth each block of an additive model, chosen from sums that a server has.

Given loss, gradient and curvature sums of the plain mean fit at some effects, the penalised loss
is a quadratic there. Its minimum and the smoothing that is right for it are found in turns, by
Fellner and Schall's update (Wood, Fasiolo: A generalized Fellner-Schall method for smoothing
parameter optimization, Biometrics 2017):

    lambda_b <- lambda_b phi (rank_b / lambda_b - tr(V S_b)) / (theta' S_b theta),  V = (H + S)^-1,

with phi = 1 for a likelihood, and twice the error variance for squared errors; for bends in few
records more than that. The next round's sums are taken at that minimum (Gu: Cross-validating
non-Gaussian data, 1992, calls this performance iteration). A handful of rounds suffice. All sums
here are totals over records.

Curvature is most of what is sent, and changes little once effects do. It is asked for again only
after a step whose gain was not what the quadratic had promised.

| symbol    | name               |
|-----------|--------------------|
| theta     | SmoothFit.theta    |
| lambda    | SmoothFit.smoothing |
| S_b       | model.roughness |
| H, g      | MeanSums           |
| phi V     | covariance         |
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace

import torch
from torch import Tensor

from fedminmax.core.additive.model import Block, fixed_roughness, roughness
from fedminmax.core.linear_structure import LinearStructure

MIN_SMOOTHING, MAX_SMOOTHING = 1e-3, 1e8
# So many records are few, in all and for each column of numbers.
CAUTIOUS_RECORDS, CAUTIOUS_RECORDS_EACH = 1_000.0, 30.0
# Of the logarithm of smoothing in one update, and how many of Fellner and Schall's that may do.
LARGEST_STEP, MOST_STEPS = math.log(30.0), 4.0
# Each update costs a factorisation of all parameters. At zeros smoothing is only begun.
UPDATES_AT_START, UPDATES_PER_ROUND = 4, 12
# Degrees of freedom.
GONE = 1e-3
# The part of the promised gain by which the real one may differ before curvature is asked for.
INACCURATE = 0.1
# Of class counts by code, in proportion to all records' shares.
PRIOR_RECORDS = 5.0
# Of the degrees of freedom, and of the penalised loss: smaller relative changes end the rounds.
SETTLED_SMOOTHING, SETTLED_LOSS = 0.1, 3e-3
# A step of a part of the former ends the updates of a round.
CLOSE = 0.3


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
    block in its last update, ``last_step`` the most by which that changed the logarithm of
    smoothing, and ``moved`` how much freedom changed in the last round, relatively. ``promised`` is
    the decrease of the penalised loss that the quadratic has at these effects.
    """

    structure: LinearStructure
    blocks: tuple[Block, ...]
    _: KW_ONLY
    records: int
    theta: Tensor
    smoothing: Tensor
    freedom: Tensor
    last_step: float = math.inf
    best: MeanSums | None = None
    promised: float = 0.0
    moved: float = math.inf
    wants_curvature: bool = True
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
    rounds, accurate = fit.rounds + 1, True
    if fit.best is not None:
        before, now = (own.loss + _penalty(fit, own.theta) for own in (fit.best, sums))
        if not now <= before + 1e-9 * abs(before):
            halfway = 0.5 * (fit.theta + fit.best.theta)
            return replace(fit, theta=halfway, promised=0.0, rounds=rounds, wants_curvature=True)
        close = before - now <= SETTLED_LOSS * abs(before)
        if close and fit.moved <= SETTLED_SMOOTHING:
            # Training starts a step further, which costs no sums.
            last = _minimum(sums, _factor(fit, sums))
            return replace(fit, best=sums, theta=last, settled=True, rounds=rounds)
        missed = abs(before - now - fit.promised)
        accurate = fit.wants_curvature or missed <= INACCURATE * abs(fit.promised)
    starts = fit.best is None and not bool(fit.theta.any())
    fit = replace(fit, best=sums, rounds=rounds, wants_curvature=not accurate)
    first = fit.freedom
    for _ in range(UPDATES_AT_START if starts else UPDATES_PER_ROUND):
        before_update = fit.freedom
        fit = _updated(fit, sums)
        # The degrees of freedom change by about as much as smoothing, relatively, or less.
        if min(_change(before_update, fit.freedom), fit.last_step) <= CLOSE * SETTLED_SMOOTHING:
            break
    moved = _change(first, fit.freedom)
    if starts and fit.structure.loss == "cross_entropy":
        return replace(fit, theta=_from_counts(fit, sums), moved=moved, wants_curvature=True)
    step = fit.theta - sums.theta
    promised = _penalty(fit, sums.theta) - _penalty(fit, fit.theta)
    promised -= float(sums.gradient @ step + 0.5 * step @ (sums.curvature @ step))
    return replace(fit, promised=promised, moved=moved)


def _penalty(fit: SmoothFit, theta: Tensor) -> float:
    """Return the penalty of these effects: smoothing, and the ridge that all parameters have."""
    by_output = theta.reshape(-1, fit.structure.columns)
    total = fit.records * fit.structure.ridge * float(theta @ theta)
    for block, smoothing, span in _smoothed_blocks(fit):
        effects = by_output[:, span]
        total += smoothing * float(((effects @ roughness(block)) * effects).sum())
        total += float((effects.square() @ fixed_roughness(block)).sum())
    return 0.5 * total


def _smoothed_blocks(fit: SmoothFit) -> Iterator[tuple[Block, float, slice]]:
    """Yield each block's own with its smoothing, and where it is among an output's parameters."""
    start = 0
    for block, smoothing in zip(fit.blocks, fit.smoothing.tolist(), strict=True):
        own = replace(block.own, smoothing=smoothing)
        yield own, smoothing, slice(start, start + own.size)
        start += own.size


def covariance(fit: SmoothFit, sums: MeanSums) -> Tensor:
    """Return phi V of the effects that were fitted with these sums."""
    factor = _factor(fit, sums)
    variance = torch.cholesky_inverse(factor)
    return variance * _dispersion(fit, sums, sums.theta, variance)


def _penalised_curvature(fit: SmoothFit, curvature: Tensor) -> Tensor:
    """Return H + S, with the ridge that all parameters have."""
    total, columns = curvature.clone(), fit.structure.columns
    total.diagonal().add_(fit.records * fit.structure.ridge)
    for start in range(0, len(total), columns):
        own = total[start : start + columns, start : start + columns]
        for block, smoothing, span in _smoothed_blocks(fit):
            if block.ordered:
                own[span, span] += smoothing * roughness(block) + fixed_roughness(block).diag()
            else:
                own.diagonal()[span] += smoothing
    return total


def _factor(fit: SmoothFit, sums: MeanSums) -> Tensor:
    factor: Tensor = torch.linalg.cholesky(_penalised_curvature(fit, sums.curvature))
    return factor


def _minimum(sums: MeanSums, factor: Tensor) -> Tensor:
    """Return where the penalised quadratic is lowest: (H + S) theta = H theta_0 - g."""
    wanted = sums.curvature @ sums.theta - sums.gradient
    return torch.cholesky_solve(wanted[:, None], factor)[:, 0]


def _updated(fit: SmoothFit, sums: MeanSums) -> SmoothFit:
    """Minimise the penalised quadratic, then update smoothing by a step of Newton's method.

    The step solves for the smoothing at which Fellner and Schall's update u = log(phi (rank /
    lambda - tr(V S)) / theta' S theta) of every block is 0. Their update alone converges slowly
    where blocks act on the same records, and each one costs a factorisation of all parameters.
    """
    factor = _factor(fit, sums)
    variance, theta = torch.cholesky_inverse(factor), _minimum(sums, factor)
    scale = _dispersion(fit, sums, theta, variance)
    # S times the effects, the diagonal of S V, and the products of S V with its transpose; a column
    # of ``members`` has a 1 for each effect of a block.
    bent, spread, products = theta.clone(), variance.diagonal().clone(), variance.square()
    curves: list[tuple[slice, Tensor]] = []
    members = torch.zeros(len(theta), len(fit.blocks), dtype=torch.float64)
    for start in range(0, len(theta), fit.structure.columns):
        for number, (block, _, span) in enumerate(_smoothed_blocks(fit)):
            own = slice(start + span.start, start + span.stop)
            members[own, number] = 1.0
            if block.ordered:
                bent[own] = roughness(block) @ theta[own]
                rough = roughness(block) @ variance[own]
                spread[own] = rough[:, own].diagonal()
                products[own] = rough * variance[own]
                products[:, own] = products[own].T
                curves.append((own, rough))
    for own, rough in curves:
        for other, also in curves:
            products[own, other] = rough[:, other] * also[:, own].T
    before, outputs = fit.smoothing, len(theta) // fit.structure.columns
    ranks = outputs * torch.tensor([float(block.own.rank) for block in fit.blocks]).double()
    caution = _caution(fit)
    cautions = torch.tensor([caution if block.ordered else 1.0 for block in fit.blocks]).double()
    traces = members.T @ spread
    freedom = (ranks / before - traces).clamp(min=1e-12)
    squares = (members.T @ (bent * theta)).clamp(min=1e-100)
    steps = (cautions * scale * freedom / squares).log().clamp(-LARGEST_STEP, LARGEST_STEP)
    # What is left of a block that is smoothed away is rounding: it is not smoothed further.
    gone = before * freedom < GONE
    steps = torch.where(gone, steps.clamp(max=0.0), steps)
    # How the steps change with smoothing, less the diagonal, in coordinates that make it symmetric.
    by_block = bent[:, None] * members
    slopes = members.T @ products @ members / (freedom[:, None] * freedom).sqrt()
    slopes += 2.0 * by_block.T @ variance @ by_block / (squares[:, None] * squares).sqrt()
    slopes *= (before[:, None] * before).sqrt()
    falls = (1.0 + traces / freedom).diag() - slopes
    falls[gone], falls[:, gone], falls.diagonal()[gone] = 0.0, 0.0, 1.0
    unit = (before * freedom).sqrt()
    values, vectors = torch.linalg.eigh(falls)
    longer = vectors @ ((vectors.T @ (unit * steps)) / values.clamp(min=1.0 / MOST_STEPS)) / unit
    longer = torch.where(ranks == 0.0, 0.0, longer).clamp(-LARGEST_STEP, LARGEST_STEP)
    return replace(
        fit,
        theta=theta,
        smoothing=(before * longer.exp()).clamp(MIN_SMOOTHING, MAX_SMOOTHING),
        freedom=torch.where(ranks == 0.0, 0.0, before * freedom),
        last_step=float(longer.abs().max()),
    )


def _from_counts(fit: SmoothFit, sums: MeanSums) -> Tensor:
    """Return better effects than those of a first step from zeros, which are too small.

    Sums at zeros tell how many records of each class have a code. Each block's effects are the log
    odds of its codes alone, smoothed, times the share of the block's own first step, as if it were
    the only one, that is left in the first step of all blocks together.
    """
    structure, outputs = fit.structure, fit.structure.outputs
    columns = structure.columns
    records = outputs * sums.curvature[columns - 1, :columns]
    counts = records / outputs - structure.basis @ sums.gradient.reshape(-1, columns)
    shares = (counts[:, -1:] / records[-1]).clamp(min=1e-6)
    chances = (counts + PRIOR_RECORDS * shares) / (records + PRIOR_RECORDS)
    odds = chances.log() - shares.log()
    odds = odds - odds.mean(dim=0)
    alone, together = outputs * (chances - shares), structure.basis @ fit.theta.reshape(-1, columns)
    effects = torch.zeros_like(together)
    for block, smoothing, span in _smoothed_blocks(fit):
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


def _dispersion(fit: SmoothFit, sums: MeanSums, theta: Tensor, variance: Tensor) -> float:
    """Return phi: 1 for a likelihood, twice the error variance for squared errors."""
    if fit.structure.loss != "squared_error":
        return 1.0
    step = theta - sums.theta
    squares = sums.loss + float(sums.gradient @ step + 0.5 * step @ (sums.curvature @ step))
    used = float((variance * sums.curvature).sum())
    return 2.0 * max(squares, 1e-300) / max(fit.records - used, 1.0)


def _caution(fit: SmoothFit) -> float:
    """Return as if how many times as much records varied, for bends, if there are few records.

    In doubt, effects of numbers are then straighter: twice (Wood: Generalized Additive Models,
    2017, section 6.2.4), or the logarithm of how many could bend by chance (Foster, George: The
    risk inflation criterion for multiple regression, 1994).
    """
    numbers = sum(block.ordered > 0 for block in fit.blocks)
    few = max(CAUTIOUS_RECORDS, CAUTIOUS_RECORDS_EACH * numbers)
    return 1.0 + min(1.0, few / fit.records) * max(1.0, math.log(max(numbers, 1)))


def _change(before: Tensor, now: Tensor) -> float:
    """Return the largest relative change of a block's degrees of freedom."""
    changes = (now - before).abs() / (1.0 + now)
    return float(changes.max())
