"""What each code adds to a score, so that base + contributions = score, for every record.

The score of two classes is the log-odds of the second; of more classes, each one's output less the
mean of all outputs (softmax does not see that mean); of a quantity, the output. A block's effects
are centred: their mean over the training records is 0, and the base is the mean score of these
records. Nothing is approximated, because the model is this sum.

Smoothing may leave to a pair what one of its columns does by itself. So the best sum of effects of
both columns is taken out of the pair's cells, by an analysis of variance weighted with records, and
added to the columns (Lengerich, Tan, Chang, Hooker, Caruana: Purifying interaction effects with the
functional ANOVA, AISTATS 2020). A pair's effects then have the mean 0 for every cell of either.

Standard errors are those of a smooth fit (Wood: Generalized Additive Models, 2017, section 6.10):
from V = (H + S)^-1 in ``core.additive.smoothing``, of the effects that are shown.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from fedminmax.core.additive.model import Block, Pair
from fedminmax.core.linear_structure import LinearStructure

# Of the largest eigenvalue; smaller ones are those of sums that a pair's margins do not tell.
LEAST_SHARE = 1e-11


@dataclass(frozen=True, eq=False)
class CentredEffects:
    """The mean score [scores], and what each code adds to it [scores, columns], by block."""

    base: Tensor
    effects: Tensor
    sizes: tuple[int, ...]

    def contributions(self, codes: Tensor) -> Tensor:
        """Return what the codes [n, blocks] add to each score: [n, scores, blocks]."""
        parts = torch.split(self.effects, list(self.sizes), dim=1)
        columns = [part.T[codes[:, block].long()] for block, part in enumerate(parts)]
        return torch.stack(columns, dim=2)


def score_contrasts(outputs: int) -> Tensor:
    """Return the matrix that turns outputs into scores [scores, outputs].

    >>> score_contrasts(2).tolist(), score_contrasts(1).tolist()
    ([[-1.0, 1.0]], [[1.0]])
    """
    if outputs == 1:
        return torch.ones(1, 1, dtype=torch.float64)
    if outputs == 2:
        return torch.tensor([[-1.0, 1.0]], dtype=torch.float64)
    return torch.eye(outputs, dtype=torch.float64) - 1.0 / outputs


def centred_effects(
    effects: Tensor,
    intercepts: Tensor,
    sizes: Sequence[int],
    pairs: Sequence[Pair],
    counts: Tensor,
) -> CentredEffects:
    """Centre effects [outputs, columns] by the training records of each code [columns].

    What both columns of ``pairs``, whose blocks are the last, do by themselves becomes theirs. A
    block without any counted record stays as it is.
    """
    contrasts = score_contrasts(len(effects))
    scores = contrasts @ effects.detach().double()
    base = contrasts @ intercepts.detach().double()
    parts = list(torch.split(scores, list(sizes), dim=1))
    shares = shares_of(counts, sizes)
    for number, pair in enumerate(pairs, len(parts) - len(pairs)):
        first, second = (parts[number] @ own.T for own in margins(pair, shares[number]))
        parts[number] = parts[number] - (first[:, :, None] + second[:, None, :]).flatten(1)
        parts[pair.first] = parts[pair.first] + first[:, list(pair.first_cells)]
        parts[pair.second] = parts[pair.second] + second[:, list(pair.second_cells)]
    for number, share in enumerate(shares):
        if float(share.sum()):
            mean = parts[number] @ share
            base = base + mean
            parts[number] = parts[number] - mean[:, None]
    return CentredEffects(base, torch.cat(parts, dim=1), tuple(sizes))


def margins(pair: Pair, share: Tensor) -> tuple[Tensor, Tensor]:
    """Return what the cells' effects add to those of either column: [its cells, cells] each.

    ``share`` are the records of each cell. They are the weights of least squares.

    >>> pair = Pair(0, 1, (0, 1), (0, 1))
    >>> first, second = margins(pair, torch.tensor([1.0, 1.0, 1.0, 1.0]))
    >>> cells = torch.tensor([5.0, 1.0, 5.0, 1.0], dtype=torch.float64)
    >>> [(own @ cells).round(decimals=6).tolist() for own in (first, second)]
    [[1.5, 1.5], [3.5, -0.5]]
    """
    cells = torch.arange(len(share))
    one_hot = torch.nn.functional.one_hot
    lines = torch.cat([one_hot(cells // pair.width), one_hot(cells % pair.width)], dim=1).double()
    weighted = (lines * share[:, None].double()).T
    fitted = torch.linalg.pinv(weighted @ lines, rtol=LEAST_SHARE, hermitian=True) @ weighted
    own = len(share) // pair.width
    return fitted[:own], fitted[own:]


def shares_of(counts: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """Return each block's shares of its counted records; zeros if none are counted."""
    return [part / part.sum().clamp(min=1.0) for part in torch.split(counts.double(), list(sizes))]


@dataclass(frozen=True, eq=False)
class _Part:
    """A part of a block's effects: for each code a row, ``cells``, of a matrix times parameters.

    Without a matrix, the parameters are the effects.
    """

    span: slice
    cells: Tensor
    matrix: Tensor | None = None

    def of(self, parameters: Tensor) -> Tensor:
        """Return the part for each code, given parameters [own, k]: [codes, k]."""
        return (parameters if self.matrix is None else self.matrix @ parameters)[self.cells]


def _parts(
    blocks: Sequence[Block], pairs: Sequence[Pair], shares: Sequence[Tensor]
) -> list[list[_Part]]:
    """Return how the effects that are shown follow from the parameters, by block."""
    ends = pairwise(accumulate((block.own.size for block in blocks), initial=0))
    found = [
        [_Part(slice(*own), torch.arange(block.size), block.line_shares() if block.nodes else None)]
        for own, block in zip(ends, blocks, strict=True)
    ]
    for number, pair in enumerate(pairs, len(blocks) - len(pairs)):
        own, share = found[number][0], shares[number]
        first, second = margins(pair, share)
        for column, cells, matrix in (
            (pair.first, pair.first_cells, first),
            (pair.second, pair.second_cells, second),
        ):
            found[column].append(_Part(own.span, torch.tensor(cells), matrix))
        left = torch.eye(len(share), dtype=torch.float64)
        left -= first[own.cells // pair.width] + second[own.cells % pair.width]
        found[number] = [replace(own, matrix=left)]
    return found


def standard_errors(
    structure: LinearStructure,
    covariance: Tensor,
    blocks: Sequence[Block],
    pairs: Sequence[Pair],
    counts: Tensor,
) -> Tensor:
    """Return the standard error of every centred effect [scores, codes].

    ``covariance`` [f, f] is that of the free parameters.
    """
    columns = structure.columns
    directions = score_contrasts(structure.outputs) @ structure.basis
    by_output = covariance.reshape(-1, columns, directions.shape[1], columns)
    shares = shares_of(counts, [block.size for block in blocks])
    parts = _parts(blocks, pairs, shares)
    errors = []
    for direction in directions:
        own = torch.einsum("a,axby,b->xy", direction, by_output, direction)
        errors += [_errors(own, *block) for block in zip(parts, shares, strict=True)]
    return torch.cat(errors).reshape(len(directions), -1)


def _errors(covariance: Tensor, parts: Sequence[_Part], share: Tensor) -> Tensor:
    """Return the standard errors of a block's effects, less their mean."""
    rows = sum((part.of(covariance[part.span]) for part in parts), torch.zeros(()))
    variances, mean = torch.zeros(len(share)), torch.zeros(len(covariance), dtype=torch.float64)
    for part in parts:
        spans = covariance[part.span, part.span]
        lines = part.of(torch.eye(len(spans), dtype=torch.float64))
        variances = variances + (rows[:, part.span] * lines).sum(dim=1)
        mean[part.span] = share @ lines
    shared = rows @ mean
    return (variances - 2.0 * shared + share @ shared).clamp(min=0).sqrt()
