"""What the plain mean fit tells about the codes of an additive model, for explanations.

Effects are centred by the training records of each code. The record is part of a saved model, which
may be published: counts below a minimum are 0 in it (Hundepool et al.: Statistical Disclosure
Control, 2012).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

MIN_SHOWN = 10
DIGITS = 4


@dataclass(frozen=True)
class PlainFit:
    """Training records of each code, and standard errors of effects by score and code."""

    counts: tuple[int, ...]
    standard_errors: tuple[tuple[float, ...], ...]

    def fits(self, codes: int, outputs: int) -> bool:
        """Return whether this can be about so many codes."""
        numbers = [number for errors in self.standard_errors for number in errors]
        return (
            len(self.counts) == codes
            and len(self.standard_errors) == (outputs if outputs > 2 else 1)
            and all(len(errors) == codes for errors in self.standard_errors)
            and min(self.counts) >= 0
            and all(0 <= number < math.inf for number in numbers)
        )


def plain_fit(counts: Sequence[float], standard_errors: Sequence[Sequence[float]]) -> PlainFit:
    """Leave out small counts, and round errors: the order of sites must not matter.

    >>> plain_fit([9.0, 10.0], [[0.123456, 2.0]])
    PlainFit(counts=(0, 10), standard_errors=((0.1235, 2.0),))
    """
    return PlainFit(
        tuple(int(count) if count >= MIN_SHOWN else 0 for count in counts),
        tuple(tuple(float(f"{e:.{DIGITS}g}") for e in errors) for errors in standard_errors),
    )
