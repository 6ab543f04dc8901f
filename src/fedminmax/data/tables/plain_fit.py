"""What the plain mean fit tells about the codes of an additive model, for explanations.

Effects are centred by the training records of each code. The record is part of a saved model, which
may be published, so no count in it is of fewer than ten records: neighbouring bins, or all rare
categories together, count as many as they have on average (Hundepool et al.: Statistical Disclosure
Control, 2012).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

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
