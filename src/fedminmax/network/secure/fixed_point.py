"""Real numbers as whole ones, so that sums are exact whatever the order, and can be masked.

A question's answer is a list of sections. A number of a ``FIXED`` section becomes
round(number x 2^exponent), and travels with the ``COUNT`` sections as a vector in Z_2^64, the whole
numbers modulo 2^64. The sum over n sites is off by at most n/2 x 2^-exponent, and cannot overflow:
each site checks that its own numbers stay within 2^62 / n. Of a section of many numbers that are
known to be small only the last ``width`` bytes of each are sent: their sum is then known modulo
2^(8 width), and the numbers are checked against that. ``places`` says which numbers of a section
can be other than 0: only these are in the vector. Exponents follow from what all sites
agreed on (``secure.layouts``), never from the wish of a server: of numbers that each site rounds
coarsely, a total shows who has the large ones.

``EXACT`` sections hold fractions whose denominator is a power of two: sums of 64-bit floating-point
numbers and of their squares. They are whole multiples of 2^-2148 below 2^(2048 + 53), and travel as
whole numbers modulo 2^EXACT_BITS, so that their sum is exact.

Two words end every vector. The first is 1 at a site that could not compute its answer (a number
does not fit, is not finite, or cannot be true). Such a site sends random numbers instead, so that
the total tells how many sites failed and nothing else: a site that said it in the clear would
answer questions about its own rows. The last word is 1 at each site: its total is the number of
sites, unless somebody masked wrongly.
"""

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from fedminmax.network.wire.codec import RefusedError

Words = NDArray[np.uint64]
# Whole numbers of sites may have this size in all: a bit less than signed 64-bit numbers can.
WORD_BYTES, SPARE_BITS = 8, 2
# Limits of local training are estimates: numbers may be so much larger.
HEADROOM_BITS = 8
# The squares of the smallest floating-point numbers are multiples of 2^-2148.
EXACT_EXPONENT = 2 * 1074
EXACT_BITS = 4352
EXACT_BYTES = EXACT_BITS // 8
MAX_EXPONENT = 1000
# After the numbers: whether the site failed, and that it is there.
LAST_WORDS = 2


class Kind(Enum):
    """What the numbers of a section are."""

    FIXED = "fixed"
    COUNT = "count"
    EXACT = "exact"


@dataclass(frozen=True)
class Section:
    """A named vector of an answer; only ``FIXED`` ones have an exponent.

    ``places`` [length] follow from the encoding, and are no part of what is hashed.
    """

    name: str
    length: int
    kind: Kind
    exponent: int = 0
    width: int = WORD_BYTES
    places: Annotated[Any, Field(exclude=True)] = field(default=None, compare=False, repr=False)

    @property
    def sent(self) -> int:
        """How many of its numbers travel."""
        return self.length if self.places is None else int(np.count_nonzero(self.places))


@dataclass(frozen=True)
class Layout:
    """The sections of an answer, in the order in which they travel."""

    sections: tuple[Section, ...]

    @property
    def words(self) -> int:
        """The length of the vector in Z_2^64, with the last words."""
        return sum(words for words, _ in self.widths)

    @property
    def widths(self) -> tuple[tuple[int, int], ...]:
        """How many words travel in so many bytes each, in turn."""
        whole = [(own.sent, own.width) for own in self.sections if own.kind is not Kind.EXACT]
        return (*whole, (LAST_WORDS, WORD_BYTES))

    @property
    def exact_numbers(self) -> int:
        """How many exact numbers there are."""
        return sum(own.length for own in self.sections if own.kind is Kind.EXACT)


@dataclass(frozen=True, eq=False)
class Packed:
    """An answer in whole numbers: words modulo 2^64, and exact numbers modulo 2^EXACT_BITS.

    ``widths`` are those of its layout.
    """

    words: Words
    exact: tuple[int, ...]
    widths: tuple[tuple[int, int], ...] = ()

    def words_to_bytes(self) -> bytes:
        """Write the words, each with as many bytes as travel."""
        parts, place = [], 0
        for count, width in self.widths or ((len(self.words), WORD_BYTES),):
            own = self.words[place : place + count].astype("<u8", copy=False)
            parts.append(own.view(np.uint8).reshape(-1, WORD_BYTES)[:, :width].tobytes())
            place += count
        return b"".join(parts)


def words_from_bytes(layout: Layout, content: bytes) -> Words:
    """Read the words of an answer; bytes that did not travel are 0."""
    parts, place = [], 0
    for count, width in layout.widths:
        own = np.zeros((count, WORD_BYTES), dtype=np.uint8)
        piece = np.frombuffer(content, dtype=np.uint8, count=count * width, offset=place)
        own[:, :width] = piece.reshape(count, width)
        parts.append(own.reshape(-1).view("<u8"))
        place += count * width
    return np.concatenate(parts).astype(np.uint64, copy=False)


class DoesNotFitError(ValueError):
    """A number is too large for its section's exponent."""


class WrongMasksError(RefusedError):
    """The masks of a total do not cancel."""


class FailedSitesError(RefusedError):
    """Sites could not compute what was asked, so there is no total."""


def exponent_for(
    largest: float, sites: int, width: int = WORD_BYTES, headroom: int = HEADROOM_BITS
) -> int:
    """Return the exponent for sites whose numbers are about this large, with some headroom.

    Sums are then off by at most sites/2 x 2^-exponent, below ``largest`` x sites^2 x 2^-46.

    >>> exponent_for(1.0, 4), exponent_for(1000.0, 4)
    (51, 42)
    """
    if largest == 0.0:
        return exponent_for(1.0, sites, width, headroom)
    bits = math.frexp(largest)[1] + math.ceil(math.log2(sites)) + headroom + SPARE_BITS
    return max(-MAX_EXPONENT, min(MAX_EXPONENT, 8 * width - bits))


def pack(layout: Layout, values: Mapping[str, Any], sites: int) -> Packed:
    """Write an answer's sections as whole numbers that are small enough for this many sites.

    Args:
        layout: the sections.
        values: each section's vector, or its fractions if it is exact.
        sites: over how many sites the total is taken.

    Raises:
        DoesNotFitError: numbers are too large for the exponents.
        RefusedError: the numbers are others, or not finite.
    """
    if [own.name for own in layout.sections] != list(values):
        agreed = ", ".join(own.name for own in layout.sections)
        raise RefusedError(f"{agreed} were agreed, this site has {', '.join(values)}")
    words: list[NDArray[np.int64]] = []
    exact: list[int] = []
    for section in layout.sections:
        own = values[section.name]
        if len(own) != section.length:
            raise RefusedError(
                f"{section.length:,} numbers of {section.name} were agreed, this site has "
                f"{len(own):,}"
            )
        if section.kind is Kind.EXACT:
            fractions = own.tolist() if isinstance(own, torch.Tensor) else own
            exact += _whole_multiples(section, fractions, sites)
        else:
            whole = _rounded(section, np.asarray(own), sites)
            words.append(whole if section.places is None else whole[section.places])
    last = np.array([0, 1], dtype=np.int64)
    vector = np.concatenate([*words, last]).view(np.uint64)
    return Packed(vector, tuple(exact), layout.widths)


def pack_failure(layout: Layout) -> Packed:
    """Write that this site has no answer: random numbers, which make the whole total random."""
    words = np.frombuffer(bytearray(secrets.token_bytes(8 * layout.words)), dtype=np.uint64)
    words[-LAST_WORDS:] = 1
    exact = tuple(secrets.randbits(EXACT_BITS) for _ in range(layout.exact_numbers))
    return Packed(words, exact, layout.widths)


def unpack(layout: Layout, total: Packed, sites: int) -> dict[str, Any]:
    """Read a total over this many sites: tensors of float64 or int64, or fractions."""
    numbers = total.words.view(np.int64)
    failed, present = numbers[-LAST_WORDS:].tolist()
    if present != sites:
        raise WrongMasksError("the masks of this total do not cancel")
    if failed:
        raise FailedSitesError(
            f"{failed} of {sites} sites could not compute an answer, and masks hide which; the "
            "reason is in the log of each of them (fedminmax site log)"
        )
    values: dict[str, Any] = {}
    place, exact = 0, list(total.exact)
    for section in layout.sections:
        if section.kind is Kind.EXACT:
            own, exact = exact[: section.length], exact[section.length :]
            values[section.name] = [_fraction(number) for number in own]
            continue
        vector = _signed(numbers[place : place + section.sent], section)
        place += section.sent
        fixed = section.kind is Kind.FIXED
        values[section.name] = torch.from_numpy(
            np.ldexp(vector.astype(np.float64), -section.exponent) if fixed else vector.copy()
        )
    return values


def _signed(numbers: NDArray[np.int64], section: Section) -> NDArray[np.int64]:
    """Return a section's numbers, given their last bytes, and 0 where none travel."""
    bits = 8 * (WORD_BYTES - section.width)
    own = (numbers << bits) >> bits if bits else numbers
    if section.places is None:
        return own
    whole = np.zeros(section.length, dtype=np.int64)
    whole[section.places] = own
    return whole


def _rounded(section: Section, own: NDArray[Any], sites: int) -> NDArray[np.int64]:
    limit = 2 ** (8 * section.width - SPARE_BITS) // sites
    if section.kind is Kind.COUNT:
        if not np.issubdtype(own.dtype, np.integer):
            raise RefusedError(
                f"this site's {section.name} are not whole numbers; nothing was sent"
            )
        whole = own.astype(np.int64)
        if len(whole) and max(-int(whole.min()), int(whole.max())) > limit:
            raise DoesNotFitError(f"{section.name} are too large to be added up")
        return whole
    if np.issubdtype(own.dtype, np.integer):
        raise RefusedError(f"this site's {section.name} are whole, and were agreed as rounded")
    if not np.isfinite(own).all():
        raise RefusedError(f"this site's {section.name} has NaN or infinity; nothing was sent")
    # Far too large numbers become infinite, and do not fit.
    with np.errstate(over="ignore"):
        scaled = np.rint(np.ldexp(own.astype(np.float64), section.exponent))
    if len(scaled) and float(np.abs(scaled).max()) > limit:
        raise DoesNotFitError(f"{section.name} are larger than the agreed sizes allow")
    return scaled.astype(np.int64)


def _whole_multiples(section: Section, own: Sequence[Any], sites: int) -> list[int]:
    try:
        whole = [Fraction(number) * 2**EXACT_EXPONENT for number in own]
    except (OverflowError, ValueError) as error:
        raise RefusedError(
            f"this site's {section.name} has NaN or infinity; nothing was sent"
        ) from error
    if any(number.denominator != 1 for number in whole):
        raise RefusedError(f"this site's {section.name} are no sums of floating-point numbers")
    if any(abs(number) * sites >= 2 ** (EXACT_BITS - 1) for number in whole):
        raise DoesNotFitError(f"{section.name} are too large to be added up")
    return [int(number) % 2**EXACT_BITS for number in whole]


def _fraction(number: int) -> Fraction:
    negative = number >= 2 ** (EXACT_BITS - 1)
    return Fraction(number - 2**EXACT_BITS if negative else number, 2**EXACT_EXPONENT)
