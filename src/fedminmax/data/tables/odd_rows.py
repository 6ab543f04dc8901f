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
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from fedminmax.config.messages import toml_key
from fedminmax.core.text import counted, first_few, quoted

MAX_FILES = 3
Numbers = NDArray[np.float64]
# Multiples of the distance from the median that 99 % of the rows keep.
FAR, TOO_FAR = 100.0, 1e6
USUAL_SHARE = 0.99
# With fewer rows the usual distance cannot be estimated.
MINIMUM_ROWS = 20
# No measurement is this large, and sums of its square must not overflow.
MAX_NUMBER = 1e100
# A code is shared by at least so many rows, and lies outside of at least so many other values.
MIN_SHARING, MIN_SHARE, MIN_OTHERS = 5, 0.005, 10
# A usual code may be nearer to the others, in units of their range.
USUAL_CODES = frozenset(float(f"{sign}{'9' * n}") for n in range(2, 7) for sign in ("", "-"))
MIN_GAP, MIN_GAP_OF_USUAL = 1.0, 0.25


class Oddity(Enum):
    """What is odd about rows, with {} for where."""

    NUL = "NUL bytes, which a text table does not have (write it again): {}"
    UNLISTED = "values that are not among their categories, and are ignored: {}"
    FAR = (
        "values more than 100 times as far from the median as 99 % of the rows, which distort the "
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
    present = ~np.isnan(values)
    too_large = present & (np.abs(values) > MAX_NUMBER)
    ordinary = values[present & ~too_large]
    distance = np.zeros(len(values))
    if len(ordinary) < MINIMUM_ROWS:
        return too_large, too_large
    distance[present] = np.abs(values[present] - np.median(ordinary))
    usual = _usual(distance[present])
    if usual == 0.0:
        return too_large, too_large
    return distance > FAR * usual, too_large | (distance > TOO_FAR * usual)


def codes_for_missing(values: Numbers) -> list[float]:
    """Return values outside the rest that many rows share: 999 for an age, -1 for a count.

    >>> codes_for_missing(np.array([*range(18, 90), *[999.0] * 9, *[-1.0] * 9]))
    [-1.0, 999.0]
    """
    distinct, counts = np.unique(values[~np.isnan(values)], return_counts=True)
    least = max(MIN_SHARING, MIN_SHARE * counts.sum())
    codes: list[float] = []
    # The outermost first: 999 may lie behind 998.
    while len(distinct) > MIN_OTHERS:
        low, high = float(distinct[0]), float(distinct[-1])
        if counts[-1] >= least and _is_code(high, distinct[:-1]):
            codes, distinct, counts = [*codes, high], distinct[:-1], counts[:-1]
        elif counts[0] >= least and _is_code(low, distinct[1:]):
            codes, distinct, counts = [*codes, low], distinct[1:], counts[1:]
        else:
            break
    return sorted(codes)


def _is_code(value: float, others: Numbers) -> bool:
    if value < 0 <= others[0] and value in (-1.0, *USUAL_CODES):
        return True
    # Other codes may be next to this one: 998 and 999.
    others = others[np.abs(others - value) > 2]
    if len(others) < MIN_OTHERS:
        return False
    low, high = float(others[0]), float(others[-1])
    least = MIN_GAP_OF_USUAL if value in USUAL_CODES else MIN_GAP
    return max(value - high, low - value) >= least * (high - low)


def _usual(distance: Numbers) -> float:
    """Return the distance that 99 % of the rows keep, or the median of non-zero distances."""
    rank = int(USUAL_SHARE * (len(distance) - 1))
    usual = float(np.partition(distance, rank)[rank])
    if usual > 0.0:
        return usual
    others = np.sort(distance[distance > 0.0])
    return float(others[(len(others) - 1) // 2]) if len(others) > 1 else 0.0
