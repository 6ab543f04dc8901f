"""Rows of a file that need attention: what is odd, in which column, how many, where the first is.

Their owner sees the file, the row, and a value that many rows share. What travels (results, card,
report) names columns alone: a row's number leads to a person, and goes when the person goes.

Numbers are encoded in standard deviations, and a single 1e308 among ordinary values makes the
deviation so large that all other rows look the same: the column is lost without any error. A robust
scale (by quartiles) cannot be computed from sums over sites, so such a value is refused; one that
is merely far away gets a warning. A value outside the rest that many rows share, such as 999, is
probably no measurement.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from fedminmax.config.messages import toml_key
from fedminmax.core.examples import PORTION, portions
from fedminmax.core.text import counted, first_few, quoted

MAX_FILES = 3
Numbers = NDArray[np.float64]
# Multiples of the distance from the median that 99% of the rows keep.
FAR, TOO_FAR = 100.0, 1e6
USUAL_SHARE = 0.99
# With fewer rows the usual distance cannot be estimated.
MINIMUM_ROWS = 20
# No measurement is this large, and sums of its square must not overflow.
MAX_NUMBER = 1e100
# A code is shared by at least so many rows, and lies outside of at least so many other values.
MIN_SHARING, MIN_SHARE, MIN_OTHERS = 5, 0.005, 10
# Usually enough rows to see as many values.
MANY = 1_000
# A usual code may be nearer to the others, in units of their range.
USUAL_CODES = frozenset(float(f"{sign}{'9' * n}") for n in range(2, 7) for sign in ("", "-"))
MIN_GAP, MIN_GAP_OF_USUAL = 1.0, 0.25


class Oddity(Enum):
    """What is odd about rows, with {} for where."""

    NUL = "NUL bytes, which a text table does not have (write it again): {}"
    UNLISTED = "values that are not among their categories, and are ignored: {}"
    FAR = (
        "values more than 100 times as far from the median as 99% of the rows, which distort the "
        "scale of all others (correct them, or name them in missing_values): {}"
    )
    CODE = (
        "values far outside the rest that many rows share; if they mean missing, name them in "
        "missing_values of the column's section: {}"
    )


@dataclass(frozen=True)
class OddRows:
    """Some rows of a file, the first one's number, and the value that they share, if any."""

    oddity: Oddity
    source: str
    column: str
    rows: int
    first: int
    value: float | None = None


def shown_here(odd: Iterable[OddRows]) -> list[str]:
    """Return a warning for each oddity, for the rows' owner: with files and row numbers."""
    return [oddity.value.format(first_few(_places(rows))) for oddity, rows in _by_oddity(odd)]


def without_rows(odd: Iterable[OddRows]) -> list[str]:
    """Return a warning for each oddity that may travel: it names columns alone."""
    return [
        oddity.value.format(quoted(list(dict.fromkeys(entry.column for entry in rows))))
        if rows[0].column
        else oddity.value.format("in some rows")
        for oddity, rows in _by_oddity(odd)
    ]


def together(odd: Iterable[OddRows]) -> tuple[OddRows, ...]:
    """Return what is odd in a file as one entry for each oddity, column and value."""
    entries: dict[tuple[Oddity, str, str, float | None], OddRows] = {}
    for entry in odd:
        key = entry.oddity, entry.source, entry.column, entry.value
        before = entries.get(key)
        rows = entry.rows + (before.rows if before else 0)
        entries[key] = replace(before or entry, rows=rows)
    return tuple(entries.values())


def _by_oddity(odd: Iterable[OddRows]) -> list[tuple[Oddity, list[OddRows]]]:
    rows = list(odd)
    each = [(oddity, [entry for entry in rows if entry.oddity is oddity]) for oddity in Oddity]
    return [(oddity, entry) for oddity, entry in each if entry]


def _places(rows: Sequence[OddRows]) -> list[str]:
    """Say where odd rows are, with all files of one column and value together."""
    together: dict[tuple[str, float | None], list[OddRows]] = {}
    for entry in rows:
        together.setdefault((entry.column, entry.value), []).append(entry)
    return [_place(column, value, entry) for (column, value), entry in together.items()]


def _place(column: str, value: float | None, rows: Sequence[OddRows]) -> str:
    total = counted(sum(entry.rows for entry in rows), "row")
    files = ", ".join(f"{entry.source} (first: row {entry.first})" for entry in rows[:MAX_FILES])
    others = len(rows) - MAX_FILES
    more = f" and {counted(others, 'more file')}" if others > 0 else ""
    if value is None:
        start = f"'{column}' in {total}" if column else total
        return f"{start} of {files}{more}"
    line = f'missing_values = ["{value:g}"] in [features.{toml_key(column)}]'
    return f"'{column}' is {value:g} in {total} of {files}{more} ({line})"


def outlier_rows(values: Numbers) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which rows are far from all others, and which are too far to encode with them."""
    too_far = np.zeros(len(values), bool)
    present = 0
    for part in portions(len(values)):
        own = values[part]
        too_far[part] = np.abs(own) > MAX_NUMBER
        present += int((~np.isnan(own)).sum())
    ordinary = present - int(too_far.sum())
    if ordinary < MINIMUM_ROWS:
        return too_far, too_far
    middle = (_ranked(values, (ordinary - 1) // 2), _ranked(values, ordinary // 2))
    median = float(np.mean(middle))
    usual = _usual(values, median, present)
    if usual == 0.0:
        return too_far, too_far
    far = np.zeros(len(values), bool)
    for part in portions(len(values)):
        distance = np.abs(values[part] - median)
        far[part] = distance > FAR * usual
        too_far[part] |= distance > TOO_FAR * usual
    return far, too_far


def codes_for_missing(values: Numbers) -> list[float]:
    """Return values outside the rest that many rows share: 999 for an age, -1 for a count.

    >>> codes_for_missing(np.array([*range(18, 90), *[999.0] * 9, *[-1.0] * 9]))
    [-1.0, 999.0]
    """
    codes: list[float] = []
    above, below = -np.inf, np.inf
    rest = _ends(values, above, below)
    least = max(MIN_SHARING, MIN_SHARE * rest.count)
    # The outermost first: 999 may lie behind 998.
    while len(rest.some) > MIN_OTHERS:
        if rest.of_high >= least and _is_code(rest.high, values, above, rest.high):
            codes, below = [*codes, rest.high], rest.high
        elif rest.of_low >= least and _is_code(rest.low, values, rest.low, below):
            codes, above = [*codes, rest.low], rest.low
        else:
            break
        rest = _ends(values, above, below)
    return sorted(codes)


def _is_code(value: float, values: Numbers, above: float, below: float) -> bool:
    """Return whether a value is outside the others, which are between two numbers."""
    if value < 0 <= _ends(values, above, below).low and value in (-1.0, *USUAL_CODES):
        return True
    # Other codes may be next to this one: 998 and 999.
    others = _ends(values, above, min(below, value - 2) if value >= below else below)
    if value <= above:
        others = _ends(values, value + 2, below)
    if len(others.some) < MIN_OTHERS:
        return False
    low, high = others.low, others.high
    least = MIN_GAP_OF_USUAL if value in USUAL_CODES else MIN_GAP
    return max(value - high, low - value) >= least * (high - low)


@dataclass(frozen=True)
class _Ends:
    """Of some values: how many, the lowest and highest with their counts, and a few of them."""

    count: int
    low: float
    high: float
    of_low: int
    of_high: int
    some: frozenset[float]


def _ends(values: Numbers, above: float, below: float) -> _Ends:
    """Describe the values between two numbers."""
    count, low, high, of_low, of_high = 0, np.inf, -np.inf, 0, 0
    some: list[float] = []
    for part in portions(len(values)):
        own = values[part]
        own = own[(own > above) & (own < below)]
        if not len(own):
            continue
        count += len(own)
        lowest, highest = float(own.min()), float(own.max())
        of_low = (of_low if low <= lowest else 0) + int((own == min(low, lowest)).sum())
        of_high = (of_high if high >= highest else 0) + int((own == max(high, highest)).sum())
        low, high = min(low, lowest), max(high, highest)
        for few in (own[:MANY], own[MANY:]):
            if len(some) <= MIN_OTHERS:
                new = np.setdiff1d(few, some)
                some += new[: MIN_OTHERS + 1 - len(some)].tolist()
    return _Ends(count, low, high, of_low, of_high, frozenset(some))


def _usual(values: Numbers, median: float, present: int) -> float:
    """Return the distance that 99% of the rows keep, or the median of non-zero distances."""
    usual = _ranked(values, int(USUAL_SHARE * (present - 1)), median)
    if usual > 0.0:
        return usual
    here = sum(int((values[part] == median).sum()) for part in portions(len(values)))
    others = present - here
    return _ranked(values, here + (others - 1) // 2, median) if others > 1 else 0.0


def _ranked(values: Numbers, rank: int, centre: float | None = None) -> float:
    """Return the value of a rank from 0, or such a distance from a centre; NaN have none.

    Without a centre, values that are no measurements have none, either. Of many values, those with
    the same leading bits are found first, 16 bits at a time, from counts (radix selection).
    """
    prefix, shift, left = np.uint64(0), 64, len(values)
    while left > PORTION and shift:
        shift -= 16
        counts = np.zeros(2**16, np.int64)
        for part in portions(len(values)):
            keys = _keys(_distances(values[part], centre))
            keys = keys if shift == 48 else keys[keys >> np.uint64(shift + 16) == prefix]
            digits = (keys >> np.uint64(shift)) & np.uint64(0xFFFF)
            counts += np.bincount(digits.astype(np.int64), minlength=2**16)
        before = np.cumsum(counts) - counts
        digit = int(np.searchsorted(before + counts, rank, side="right"))
        rank, left = rank - int(before[digit]), int(counts[digit])
        prefix = (prefix << np.uint64(16)) | np.uint64(digit)
    rest = []
    for part in portions(len(values)):
        own = _distances(values[part], centre)
        own = own if shift == 64 else own[_keys(own) >> np.uint64(shift) == prefix]
        # Those with the same 64 bits are equal.
        rest.append(own if shift else own[:1])
    near = np.concatenate(rest)
    return float(np.partition(near, rank)[rank] if shift else near[0])


def _distances(values: Numbers, centre: float | None) -> Numbers:
    own = values[~np.isnan(values)]
    return own[np.abs(own) <= MAX_NUMBER] if centre is None else np.abs(own - centre)


def _keys(values: Numbers) -> NDArray[np.uint64]:
    """Return whole numbers in the order of these values."""
    # There is one zero.
    bits = (values + 0.0).view(np.uint64)
    sign = np.uint64(2**63)
    return np.where(bits < sign, bits | sign, ~bits)
