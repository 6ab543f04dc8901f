"""Cells so far from all others that they leave these no scale.

Numbers are encoded in standard deviations. One cell of 1e308 among ordinary ones makes the
deviation so large that all other rows look the same: the column is lost without a word. A robust
scale (by quartiles) cannot be had from sums that add up over holders, so such a cell is refused;
one that is merely far away is warned of.
"""

import numpy as np
from numpy.typing import NDArray

from fedminmax.core.counted import counted
from fedminmax.core.errors import InputError
from fedminmax.data.tables.read_file import Table

Numbers = NDArray[np.float64]

# So many times as far from the median as 99 % of the rows.
FAR, TOO_FAR = 100.0, 1e6
USUAL_SHARE = 0.99
# With fewer rows there is no saying what is usual.
MINIMUM_ROWS = 20
# No measurement has such a number, and its square must have room for sums.
LARGEST_NUMBER = 1e100


def far_rows(values: Numbers) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which rows are far from all others, and which too far to be encoded with them."""
    known = ~np.isnan(values)
    too_large = known & (np.abs(values) > LARGEST_NUMBER)
    ordinary = values[known & ~too_large]
    distance = np.zeros(len(values))
    if len(ordinary) < MINIMUM_ROWS:
        return too_large, too_large
    distance[known] = np.abs(values[known] - np.median(ordinary))
    usual = _usual(distance[known])
    if usual == 0.0:
        return too_large, too_large
    return distance > FAR * usual, too_large | (distance > TOO_FAR * usual)


def check_far_rows(table: Table, column: str, values: Numbers) -> list[str]:
    """Refuse rows that are too far from all others; warn of those that are far."""
    far, too_far = far_rows(values)
    if too_far.any():
        first = int(too_far.argmax())
        raise InputError(
            f"{table.title}: column '{column}', row {int(table.row_numbers[first])} is "
            f"{values[first]:g}, so far from the others that these would all look the same "
            f"({int(too_far.sum()):,} such rows); correct it, or add it to missing_values in [data]"
        )
    if not far.any():
        return []
    # Warnings are kept in the run folder and its report: no value.
    first_row = int(table.row_numbers[int(far.argmax())])
    words = (
        f"{table.title}: {counted(int(far.sum()), 'value')} of '{column}' more than {FAR:g} "
        f"times as far from the median as 99 % of the rows (first: row {first_row}), which "
        "stretch the scale for all others: correct them, or add them to missing_values in [data]"
    )
    return [words]


def _usual(distance: Numbers) -> float:
    """Return the distance that 99 % of the rows keep, or half of those that are not at 0."""
    place = int(USUAL_SHARE * (len(distance) - 1))
    usual = float(np.partition(distance, place)[place])
    if usual > 0.0:
        return usual
    others = np.sort(distance[distance > 0.0])
    return float(others[(len(others) - 1) // 2]) if len(others) > 1 else 0.0
