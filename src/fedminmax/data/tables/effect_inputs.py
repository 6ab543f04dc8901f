"""What a network sees of a table: the effects of the additive model of the same columns.

A network hardly learns effects that jump between a few shared values of a number, or differ between
hundreds of categories. So its inputs are what the plain additive fit found (as in stacking: Wolpert
1992): the effect of each column's bin or category, and of each pair's cell, on every score; where
in its column a number is; and last the sum of all effects. A linear model of these inputs can be
the additive one, and a network starts there (``linear_start``). Only what depends on several
columns at once is left for it to learn. All but the sum are scaled down: with few records, effects
that are fitted again one by one fit chance, and a small penalty holds small inputs back.

Every input is a function of a code, so that nothing is agreed on besides the additive model.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fedminmax.core.additive.model import Block

# By block, then by input: a number for each code. The first inputs are the effects on each score.
Inputs = tuple[tuple[tuple[float, ...], ...], ...]
# Of all inputs but the sum.
SCALE = 0.3
# The order in which sites were added must not matter.
DIGITS = 6


def inputs_of(blocks: Sequence[Block], effects: Tensor, counts: Tensor) -> Inputs:
    """Return the inputs, given centred effects [scores, codes] and training records by code.

    >>> ordered = Block(3, 3, positions=(0.0, 1.0, 4.0))
    >>> inputs_of([ordered], torch.tensor([[0.5, 0.0, -0.5]]), torch.tensor([3.0, 4.0, 1.0]))
    (((0.5, 0.0, -0.5), (-0.816497, 0.0, 2.44949)),)
    """
    sizes = [block.size for block in blocks]
    found = []
    for block, own, rows in zip(
        blocks, torch.split(effects, sizes, dim=1), torch.split(counts.double(), sizes), strict=True
    ):
        lines = own.tolist()
        if block.positions:
            lines.append(_standardised(block, rows[: block.ordered]))
        found.append(tuple(tuple(float(f"{v:.{DIGITS}g}") for v in line) for line in lines))
    return tuple(found)


def _standardised(block: Block, rows: Tensor) -> list[float]:
    """Return where bins are, in standard deviations from the mean; missing values are at 0."""
    places = torch.tensor(block.positions, dtype=torch.float64)
    shares = rows / rows.sum().clamp(min=1.0)
    centred = places - shares @ places
    deviation = (shares @ centred.square()).sqrt()
    beside = [0.0] * (block.size - block.ordered)
    return [*(centred / deviation.clamp(min=1e-300)).tolist(), *beside]


def input_names(inputs: Inputs, blocks: Sequence[str], scores: Sequence[str]) -> tuple[str, ...]:
    """Return a name for each input, given those of blocks and of several scores."""
    each = [f" on {score}" for score in scores] if len(scores) > 1 else [""]
    names = [
        name
        for block, lines in zip(blocks, inputs, strict=True)
        for name in [*(f"effect of {block}{on}" for on in each), block][: len(lines)]
    ]
    return (*names, *(f"sum of effects{on}" for on in each))


def network_rows(codes: Tensor, inputs: Inputs, scores: int) -> Tensor:
    """Return the inputs of records with these codes [n, blocks], in float32."""
    parts, total = [], torch.zeros(len(codes), scores, dtype=torch.float64)
    for block, lines in enumerate(inputs):
        table = torch.tensor(lines, dtype=torch.float64).T
        own = table[codes[:, block].long()]
        total += own[:, :scores]
        parts.append(SCALE * own)
    return torch.cat([*parts, total], dim=1).float()


def longest_row(inputs: Inputs, scores: int) -> float:
    """Return a bound on the squared length of every record, a 1 appended.

    >>> longest_row((((0.5, -2.0),), ((1.0, 0.0),)), 1)
    10.45
    """
    tables = [torch.tensor(lines, dtype=torch.float64) for lines in inputs]
    squares = sum(float((SCALE * table).square().sum(dim=0).max()) for table in tables)
    totals = torch.stack([table[:scores].abs().amax(dim=1) for table in tables]).sum(dim=0)
    return 1.0 + squares + float(totals.square().sum())


def are_inputs(inputs: Inputs, blocks: Sequence[Block], scores: int) -> bool:
    """Return whether these can be the inputs of codes of these blocks."""
    return len(inputs) == len(blocks) and all(
        len(lines) == scores + bool(block.positions)
        and all(len(line) == block.size and all(map(math.isfinite, line)) for line in lines)
        for block, lines in zip(blocks, inputs, strict=True)
    )
