"""What each code adds to a score, so that base + contributions = score, for every record.

The score of two classes is the log-odds of the second; of more classes, each one's output less the
mean of all outputs (softmax does not see that mean); of a quantity, the output. A block's effects
are centred: their mean over the training records is 0, and the base is the mean score of these
records. Nothing is approximated, because the model is this sum.

Standard errors are those of a smooth fit (Wood: Generalized Additive Models, 2017, section 6.10):
from V = (H + S)^-1 in ``core.additive.smoothing``, of effects after centring.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from fedminmax.core.additive.model import Block
from fedminmax.core.linear_structure import LinearStructure


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
    effects: Tensor, intercepts: Tensor, sizes: Sequence[int], counts: Tensor
) -> CentredEffects:
    """Centre effects [outputs, columns] by the training records of each code [columns].

    A block without any counted record stays as it is.
    """
    contrasts = score_contrasts(len(effects))
    scores = contrasts @ effects.detach().double()
    base = contrasts @ intercepts.detach().double()
    parts = []
    for part, share in zip(
        torch.split(scores, list(sizes), dim=1), shares_of(counts, sizes), strict=True
    ):
        mean = part @ share
        base = base + mean
        parts.append(part - mean[:, None] if float(share.sum()) else part)
    return CentredEffects(base, torch.cat(parts, dim=1), tuple(sizes))


def shares_of(counts: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """Return each block's shares of its counted records; zeros if none are counted."""
    return [part / part.sum().clamp(min=1.0) for part in torch.split(counts.double(), list(sizes))]


def standard_errors(
    structure: LinearStructure, covariance: Tensor, blocks: Sequence[Block], counts: Tensor
) -> Tensor:
    """Return the standard error of every centred effect [scores, codes].

    ``covariance`` [f, f] is that of the free parameters.
    """
    columns = structure.columns
    directions = score_contrasts(structure.outputs) @ structure.basis
    by_output = covariance.reshape(-1, columns, directions.shape[1], columns)
    shares = shares_of(counts, [block.size for block in blocks])
    ends = pairwise(accumulate((block.own.size for block in blocks), initial=0))
    places = [slice(*own) for own in ends]
    errors = []
    for direction in directions:
        for block, span, share in zip(blocks, places, shares, strict=True):
            own = torch.einsum("a,axby,b->xy", direction, by_output[:, span, :, span], direction)
            if block.nodes:
                own = block.line_shares() @ own @ block.line_shares().T
            mean = own @ share
            errors.append((own.diagonal() - 2.0 * mean + mean @ share).clamp(min=0).sqrt())
    return torch.cat(errors).reshape(len(directions), -1)
