"""Shift and scale by the pooled mean and deviation.

Both come from exact sums over rows, which holders can add up: no split among them changes a bit.
Columns of zeros and ones stay as they are: divided by its deviation, a rare word's 1 becomes so
large that the safe step for all columns shrinks by an order of magnitude.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedminmax.core.exact_sums import exact_sums


@dataclass(frozen=True, eq=False)
class Scaling:
    """Mean and scale of each column, in float64."""

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]

    def apply(self, table: NDArray[Any]) -> NDArray[Any]:
        """Return the scaled table, in the precision in which it came."""
        return ((table - self.mean) / self.scale).astype(table.dtype)

    def undo(self, table: NDArray[Any]) -> NDArray[Any]:
        """Return the table that ``apply`` would make into this one."""
        return table * self.scale + self.mean


def measure_scaling(table: NDArray[Any], *, wanted: bool) -> Scaling:
    """Measure the columns; a constant one is only shifted, and nothing is if not ``wanted``.

    >>> scaling = measure_scaling(np.array([[0.0, 7.0, 1.0], [2.0, 7.0, 0.0]]), wanted=True)
    >>> scaling.apply(np.array([[4.0, 7.0, 1.0]])).tolist()
    [[3.0, 0.0, 1.0]]
    """
    measured = [_measure(column) if wanted else (0.0, 1.0) for column in table.T]
    mean, scale = zip(*measured, strict=True)
    return Scaling(np.array(mean), np.array(scale))


def _measure(column: NDArray[Any]) -> tuple[float, float]:
    if ((column == 0.0) | (column == 1.0)).all():
        return 0.0, 1.0
    sums = exact_sums(np.ascontiguousarray(column, dtype=np.float64))
    return sums.mean, sums.deviation or 1.0
