"""Values far from all others, and codes such as 999 that mean a missing value.

Numbers are encoded in standard deviations, and a single 1e308 among ordinary values makes the
deviation so large that all other rows look the same: the column is lost without any error. A robust
scale (by quartiles) cannot be computed from sums over sites, so such a value is refused; one that
is merely far away gets a warning. A value outside the rest that many rows share is probably no
measurement.
"""

import numpy as np
from numpy.typing import NDArray

from fedminmax.core.errors import InputError
from fedminmax.data.tables.odd_rows import Oddity, OddRows
from fedminmax.data.tables.read_file import Table

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


def outlier_rows(values: Numbers) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which rows are far from all others, and which are too far to encode with them."""
    known = ~np.isnan(values)
    too_large = known & (np.abs(values) > MAX_NUMBER)
    ordinary = values[known & ~too_large]
    distance = np.zeros(len(values))
    if len(ordinary) < MINIMUM_ROWS:
        return too_large, too_large
    distance[known] = np.abs(values[known] - np.median(ordinary))
    usual = _usual(distance[known])
    if usual == 0.0:
        return too_large, too_large
    return distance > FAR * usual, too_large | (distance > TOO_FAR * usual)


def odd_numbers(table: Table, column: str, values: Numbers) -> list[OddRows]:
    """Refuse rows that are too far from all others; return those that are far or share a code."""
    far, too_far = outlier_rows(values)
    if too_far.any():
        first = int(too_far.argmax())
        raise InputError(
            f"{table.title}: column '{column}', row {int(table.row_numbers[first])} is "
            f"{values[first]:g}, so far from the others that these would all look the same "
            f"({int(too_far.sum()):,} such rows); correct it, or add it to missing_values in [data]"
        )
    codes = codes_for_missing(values)
    shared: list[tuple[Oddity, NDArray[np.bool_], float | None]] = [
        (Oddity.CODE, values == code, code) for code in codes
    ]
    found = [*shared, (Oddity.FAR, far & ~np.isin(values, codes), None)]
    return [
        OddRows(
            oddity,
            table.source,
            column,
            int(rows.sum()),
            int(table.row_numbers[int(rows.argmax())]),
            code,
        )
        for oddity, rows, code in found
        if rows.any()
    ]


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
    place = int(USUAL_SHARE * (len(distance) - 1))
    usual = float(np.partition(distance, place)[place])
    if usual > 0.0:
        return usual
    others = np.sort(distance[distance > 0.0])
    return float(others[(len(others) - 1) // 2]) if len(others) > 1 else 0.0
