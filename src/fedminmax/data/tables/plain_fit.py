"""What the plain additive fit tells: for explanations, and as the inputs of a network.

Effects are centred by the training records of each code. The record is part of a saved model, which
may be published, so no count in it is of fewer than ten records: neighbouring bins, or all rare
categories together, count as many as they have on average (Hundepool et al.: Statistical Disclosure
Control, 2012).

A network hardly learns effects that jump between a few shared values of a number, or differ between
hundreds of categories. So its inputs are what the plain additive fit found (as in stacking: Wolpert
1992): the effect of each column's bin or category, and of each pair's cell, on every score; where
in its column a number is; and last the sum of all effects. A linear model of these inputs can be
the additive one, and a network starts there (``linear_start``). Only what depends on several
columns at once is left for it to learn. All but the sum are scaled down: with few records, effects
that are fitted again one by one fit chance, and a small penalty holds small inputs back. Every
input is a function of a code, so that nothing is agreed on besides the additive model.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedminmax.core.additive.model import Block

MIN_SHOWN = 10
DIGITS = 4
Size = Annotated[float, Field(ge=-1e100, le=1e100)]


@dataclass(frozen=True)
class PlainFit:
    """Training records of each code, standard errors of effects by score and code, and rounds.

    The rounds are those in which smoothing and pairs were chosen.
    """

    counts: tuple[float, ...]
    standard_errors: tuple[tuple[float, ...], ...]
    rounds: int = 0

    def fits(self, codes: int, outputs: int) -> bool:
        """Return whether this can be about so many codes."""
        numbers = [number for errors in self.standard_errors for number in errors]
        return (
            len(self.counts) == codes
            and len(self.standard_errors) == (outputs if outputs > 2 else 1)
            and all(len(errors) == codes for errors in self.standard_errors)
            and all(0 <= number < math.inf for number in (*self.counts, *numbers, self.rounds))
        )


@dataclass(frozen=True)
class Departure:
    """How the records of a group differ from a column's effect, in parts of the column's codes.

    ``shifts`` are how much higher the group's own levels are than the model's, beyond its mean, and
    ``errors`` their standard errors. ``deviation`` is their standard deviation, without chance.
    """

    column: str
    group: str
    cells: tuple[tuple[Annotated[int, Field(ge=0)], ...], ...]
    shifts: tuple[Size, ...]
    errors: tuple[Size, ...]
    records: tuple[Annotated[int, Field(ge=0)], ...]
    deviation: Size


def plain_fit(
    blocks: Sequence[Block],
    counts: Sequence[float],
    standard_errors: Sequence[Sequence[float]],
    rounds: int = 0,
) -> PlainFit:
    """Average small counts, and round errors: the order of sites must not matter.

    >>> plain_fit([Block(4, ordered=4), Block(3)], [4, 8, 3, 30, 8, 30, 7], [[0.123456] * 7]).counts
    (6.0, 6.0, 16.5, 16.5, 7.5, 30.0, 7.5)
    """
    shown: list[float] = []
    start = 0
    for block in blocks:
        own = [float(count) for count in counts[start : start + block.size]]
        shown += [*_by_neighbours(own[: block.ordered]), *_by_rarity(own[block.ordered :])]
        start += block.size
    return PlainFit(
        tuple(shown),
        tuple(tuple(float(f"{e:.{DIGITS}g}") for e in errors) for errors in standard_errors),
        rounds,
    )


def _by_neighbours(counts: Sequence[float]) -> list[float]:
    """Average over neighbours that have the minimum together."""
    parts: list[list[float]] = []
    for count in counts:
        if parts and sum(parts[-1]) < MIN_SHOWN:
            parts[-1].append(count)
        else:
            parts.append([count])
    if len(parts) > 1 and sum(parts[-1]) < MIN_SHOWN:
        last = parts.pop()
        parts[-1] += last
    return [_mean(part) for part in parts for _ in part]


def _by_rarity(counts: Sequence[float]) -> list[float]:
    """Average over all that are below the minimum, but occur."""
    rare = [count for count in counts if 0 < count < MIN_SHOWN]
    return [_mean(rare) if 0 < count < MIN_SHOWN else count for count in counts]


def _mean(part: Sequence[float]) -> float:
    total = sum(part)
    return round(total / len(part), DIGITS) if total >= MIN_SHOWN else 0.0


# By block, then by input: a number for each code. The first inputs are the effects on each score.
Inputs = tuple[tuple[tuple[float, ...], ...], ...]
# Of all inputs but the sum.
SCALE = 0.3
# The order in which sites were added must not matter.
INPUT_DIGITS = 6


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
        found.append(tuple(tuple(float(f"{v:.{INPUT_DIGITS}g}") for v in line) for line in lines))
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
