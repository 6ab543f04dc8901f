"""Exact sums over rows: bit-identical however the rows are split between sites.

Rounding makes ordinary sums depend on their order. Here each pass splits the leading bits off all
numbers at once, by adding and subtracting one large power of two; these parts are multiples of one
unit and together too small to be rounded, so any summation adds them exactly. The passes repeat
until nothing is left (Rump, Ogita, Oishi: Accurate floating-point summation I, SIAM Journal on
Scientific Computing 2008, ExtractVector). Squares are product plus rounding error (Dekker:
A floating-point technique for extending the available precision, Numerische Mathematik 1971).
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fedminmax.core.errors import InputError

Numbers = NDArray[np.float64]
# Small enough to stay in a core's cache; the passes are sized for it.
ROWS_LOG2 = 14
# Between these, a square and its rounding error neither overflow nor underflow.
MIN_SAFE, MAX_SAFE = 2.0**-480, 2.0**480
# Dekker's splitter for 53 bits.
SPLITTER = 2.0**27 + 1


@dataclass(frozen=True)
class ExactSums:
    """n, sum x and sum x^2 without rounding; they can be added in any order."""

    count: int
    total: Fraction
    squares: Fraction

    def __add__(self, other: "ExactSums") -> "ExactSums":
        return ExactSums(
            self.count + other.count, self.total + other.total, self.squares + other.squares
        )

    @property
    def mean(self) -> float:
        """The mean, rounded once."""
        return float(self.total / self.count)

    @property
    def variance(self) -> Fraction:
        """The mean squared distance from the mean: zero only if all numbers are equal."""
        return self.squares / self.count - (self.total / self.count) ** 2

    @property
    def deviation(self) -> float:
        """The standard deviation of these numbers (not an estimate for a population).

        >>> exact_sums(np.array([1e9, 1e9 + 2])).deviation
        1.0
        """
        variance = self.variance
        if variance == 0:
            return 0.0
        # Factor out a power of four first: the deviation may be representable where the variance,
        # its square, is not.
        half = (variance.numerator.bit_length() - variance.denominator.bit_length()) // 2
        return math.ldexp(math.sqrt(variance / Fraction(4) ** half), half)


NO_ROWS = ExactSums(0, Fraction(0), Fraction(0))


def exact_sums(values: Numbers) -> ExactSums:
    """Sum finite numbers and their squares exactly.

    >>> exact_sums(np.array([1e100, 1.0, -1e100])).total
    Fraction(1, 1)
    """
    if not np.isfinite(values).all():
        raise InputError("a column to sum has NaN or infinite numbers; drop them first")
    rows = 1 << ROWS_LOG2
    chunks = [_sum_chunk(values[i : i + rows]) for i in range(0, len(values), rows)]
    return sum(chunks, NO_ROWS)


def _sum_chunk(values: Numbers) -> ExactSums:
    size = np.abs(values)
    extreme = (size > MAX_SAFE) | ((size < MIN_SAFE) & (size > 0))
    rare = [Fraction(float(value)) for value in values[extreme]]
    ordinary = values[~extreme] if rare else values
    products = ordinary * ordinary
    errors = _product_errors(ordinary, products)
    return ExactSums(
        len(values),
        sum(rare, _total(ordinary)),
        sum((value * value for value in rare), _total(products) + _total(errors)),
    )


def _product_errors(values: Numbers, products: Numbers) -> Numbers:
    """Return x^2 - fl(x^2), which is itself a floating-point number."""
    wide = values * SPLITTER
    head = wide - (wide - values)
    tail = values - head
    errors: Numbers = ((head * head - products) + 2.0 * (head * tail)) + tail * tail
    return errors


def _total(values: Numbers) -> Fraction:
    """Sum at most 2^ROWS_LOG2 numbers exactly."""
    total, rest = Fraction(0), values
    while len(rest) and (largest := float(np.abs(rest).max())) > 0.0:
        # All parts together stay below half the anchor, in units of 2^-53 of it.
        anchor = math.ldexp(1.0, math.frexp(largest)[1] + ROWS_LOG2 + 1)
        parts = (rest + anchor) - anchor
        total += Fraction(float(parts.sum()))
        rest = rest - parts
    return total
