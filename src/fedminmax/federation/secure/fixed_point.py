"""Real numbers as whole ones, so that sums are exact whatever the order, and can be masked.

A question's answer is a list of sections. A number of a ``FIXED`` section becomes
round(number x 2^exponent), and travels with the ``COUNT`` sections as a vector in Z_2^64, the whole
numbers modulo 2^64. The sum over n sites is off by at most n/2 x 2^-exponent, and cannot overflow:
each site checks that its own numbers stay within 2^62 / n. If one does not fit, the site says in
which section, and is asked again with a smaller exponent (``coarser``). That is all it discloses of
itself, so exponents are multiples of EXPONENT_STEP: how large its numbers are can be found out to a
factor of 256, and no closer.

``EXACT`` sections hold fractions whose denominator is a power of two: sums of 64-bit floating-point
numbers and of their squares. They are whole multiples of 2^-2148 below 2^(2048 + 53), and travel as
whole numbers modulo 2^EXACT_BITS, so that their sum is exact.

The last word of every vector is 1 at each site: its total is the number of sites, unless somebody
masked wrongly.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedminmax.federation.wire.codec import RefusedError

Words = NDArray[np.uint64]
# Whole numbers of sites may have this size in all: a bit less than signed 64-bit numbers can.
MAX_TOTAL_BITS = 62
# From one question to the next, numbers may grow so much without being asked for again.
HEADROOM_BITS = 8
EXPONENT_STEP = 8
# What is tried next if a number does not fit.
COARSER_BITS = 16
# The squares of the smallest floating-point numbers are multiples of 2^-2148.
EXACT_EXPONENT = 2 * 1074
EXACT_BITS = 4352
EXACT_BYTES = EXACT_BITS // 8
MAX_EXPONENT = 1000


class Kind(Enum):
    """What the numbers of a section are."""

    FIXED = "fixed"
    COUNT = "count"
    EXACT = "exact"


@dataclass(frozen=True)
class Section:
    """A named vector of an answer; only ``FIXED`` ones have an exponent."""

    name: Annotated[str, Field(max_length=100)]
    length: Annotated[int, Field(ge=0, le=2**40)]
    kind: Kind
    exponent: Annotated[int, Field(ge=-MAX_EXPONENT, le=MAX_EXPONENT)] = 0


@dataclass(frozen=True)
class Layout:
    """The sections of an answer, in the order in which they travel."""

    sections: tuple[Section, ...]

    @property
    def words(self) -> int:
        """The length of the vector in Z_2^64, with the word that counts the sites."""
        return sum(own.length for own in self.sections if own.kind is not Kind.EXACT) + 1

    @property
    def exact_numbers(self) -> int:
        """How many exact numbers there are."""
        return sum(own.length for own in self.sections if own.kind is Kind.EXACT)

    @property
    def bytes(self) -> int:
        """The size of all numbers together."""
        return 8 * self.words + EXACT_BYTES * self.exact_numbers

    def coarser(self, names: Collection[str]) -> "Layout":
        """Return the layout in which larger numbers fit into these sections."""
        return Layout(
            tuple(
                replace(own, exponent=own.exponent - COARSER_BITS) if own.name in names else own
                for own in self.sections
            )
        )


@dataclass(frozen=True, eq=False)
class Packed:
    """An answer in whole numbers: words modulo 2^64, and exact numbers modulo 2^EXACT_BITS."""

    words: Words
    exact: tuple[int, ...]


class DoesNotFitError(ValueError):
    """A number is too large for its section's exponent; ``sections`` are all such ones."""

    def __init__(self, sections: tuple[str, ...]) -> None:
        super().__init__(f"numbers of {', '.join(sections)} do not fit")
        self.sections = sections


def exponent_for(largest: float, sites: int) -> int:
    """Return the exponent for sites whose numbers are about this large, with some headroom.

    Sums are then off by at most sites/2 x 2^-exponent, below ``largest`` x sites^2 x 2^-46.

    >>> exponent_for(1.0, 4), exponent_for(1000.0, 4)
    (48, 40)
    """
    if largest == 0.0:
        return exponent_for(1.0, sites)
    bits = math.frexp(largest)[1] + math.ceil(math.log2(sites)) + HEADROOM_BITS
    exponent = (MAX_TOTAL_BITS - bits) // EXPONENT_STEP * EXPONENT_STEP
    return max(-MAX_EXPONENT, min(MAX_EXPONENT, exponent))


def pack(layout: Layout, values: Mapping[str, Any], sites: int) -> Packed:
    """Write an answer's sections as whole numbers that are small enough for this many sites.

    Args:
        layout: the sections.
        values: each section's NumPy vector, or its fractions if it is exact.
        sites: over how many sites the total is taken.

    Raises:
        DoesNotFitError: numbers are too large for the exponents.
        RefusedError: the sections are others, or numbers are not finite.
    """
    if [own.name for own in layout.sections] != list(values):
        asked = ", ".join(own.name for own in layout.sections)[:200]
        raise RefusedError(f"the server asks for {asked}, this site has {', '.join(values)}")
    words: list[NDArray[np.int64]] = []
    exact: list[int] = []
    unfit = []
    for section in layout.sections:
        own = values[section.name]
        if section.exponent % EXPONENT_STEP:
            raise RefusedError(f"the server asks for {section.name} with an odd exponent; refused")
        if len(own) != section.length:
            raise RefusedError(
                f"the server asks for {section.length:,} numbers of {section.name}, "
                f"this site has {len(own):,}"
            )
        try:
            if section.kind is Kind.EXACT:
                exact += _whole_multiples(section, own, sites)
            else:
                words.append(_rounded(section, np.asarray(own), sites))
        except DoesNotFitError:
            unfit.append(section.name)
    if unfit:
        raise DoesNotFitError(tuple(unfit))
    one = np.ones(1, dtype=np.int64)
    return Packed(np.concatenate([*words, one]).view(np.uint64), tuple(exact))


def unpack(layout: Layout, total: Packed, sites: int) -> dict[str, Any]:
    """Read a total over this many sites: float64, int64 or fractions by section."""
    numbers = total.words.view(np.int64)
    if int(numbers[-1]) != sites:
        raise RefusedError("the masks of this total do not cancel: a site masked wrongly; refused")
    values: dict[str, Any] = {}
    place, exact = 0, list(total.exact)
    for section in layout.sections:
        if section.kind is Kind.EXACT:
            own, exact = exact[: section.length], exact[section.length :]
            values[section.name] = [_fraction(number) for number in own]
            continue
        vector = numbers[place : place + section.length]
        place += section.length
        fixed = section.kind is Kind.FIXED
        values[section.name] = (
            np.ldexp(vector.astype(np.float64), -section.exponent) if fixed else vector.copy()
        )
    return values


def _rounded(section: Section, own: NDArray[Any], sites: int) -> NDArray[np.int64]:
    limit = 2**MAX_TOTAL_BITS // sites
    if section.kind is Kind.COUNT:
        if not np.issubdtype(own.dtype, np.integer):
            raise RefusedError(
                f"this site's {section.name} are not whole numbers; nothing was sent"
            )
        whole = own.astype(np.int64)
        if len(whole) and max(-int(whole.min()), int(whole.max())) > limit:
            raise DoesNotFitError((section.name,))
        return whole
    if np.issubdtype(own.dtype, np.integer):
        # Counts that each site divides and rounds would show who has the large ones.
        raise RefusedError(f"the server asks for rounded {section.name}, which are whole; refused")
    if not np.isfinite(own).all():
        raise RefusedError(f"this site's {section.name} has NaN or infinity; nothing was sent")
    # Far too large numbers become infinite, and do not fit.
    with np.errstate(over="ignore"):
        scaled = np.rint(np.ldexp(own.astype(np.float64), section.exponent))
    if len(scaled) and float(np.abs(scaled).max()) > limit:
        raise DoesNotFitError((section.name,))
    return scaled.astype(np.int64)


def _whole_multiples(section: Section, own: Sequence[Fraction], sites: int) -> list[int]:
    whole = [number * 2**EXACT_EXPONENT for number in own]
    if any(number.denominator != 1 for number in whole):
        raise RefusedError(f"this site's {section.name} are no sums of floating-point numbers")
    if any(abs(number) * sites >= 2 ** (EXACT_BITS - 1) for number in whole):
        raise DoesNotFitError((section.name,))
    return [int(number) % 2**EXACT_BITS for number in whole]


def _fraction(number: int) -> Fraction:
    negative = number >= 2 ** (EXACT_BITS - 1)
    return Fraction(number - 2**EXACT_BITS if negative else number, 2**EXACT_EXPONENT)
