"""Bootstrap by group: how much sums over rows would vary if the rows were drawn again.

Efron: Bootstrap methods, Annals of Statistics 1979; intervals are percentiles of the resamples.
Rows are drawn with replacement within each group, as many as the group has: the sizes of the groups
are taken as given, because the risk of a group is asked about, not its share.

A resample is a count for each row, so the sums of many resamples are one matrix product.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fedminmax.core.randomness import Purpose, numpy_stream

Table = NDArray[np.float64]

# What intervals are made of unless somebody asks for something else.
RESAMPLES = 1000
CONFIDENCE = 0.95
# Counts of so many rows fit into the cache of a core.
COUNTS_AT_ONCE = 200_000


def resampled_sums(
    table: Table, group: NDArray[np.int64], groups: int, *, resamples: int, seed: int
) -> Table:
    """Return the sums [resamples, groups, columns] of a table [rows, columns] over each group.

    >>> rows, group = np.array([[1.0], [5.0], [5.0]]), np.array([0, 1, 1])
    >>> resampled_sums(rows, group, 2, resamples=2, seed=0)[:, :, 0].tolist()
    [[1.0, 10.0], [1.0, 10.0]]
    """
    sums = np.zeros((resamples, groups, table.shape[1]))
    for number in range(groups):
        own = table[group == number]
        # A stream for each group: what others have does not move a group's interval.
        generator = numpy_stream(seed, Purpose.BOOTSTRAP, number)
        for block, counts in _counts(len(own), resamples, generator):
            sums[block, number] = counts @ own
    return sums


def _counts(
    rows: int, resamples: int, generator: np.random.Generator
) -> Iterator[tuple[slice, Table]]:
    """Yield how often each row is drawn [resamples, rows], some resamples at a time."""
    at_once = max(1, COUNTS_AT_ONCE // max(rows, 1))
    for start in range(0, resamples, at_once):
        size = min(at_once, resamples - start)
        drawn = generator.integers(rows, size=(size, rows)) if rows else np.zeros((size, 0), int)
        drawn += rows * np.arange(size)[:, None]
        counts = np.bincount(drawn.reshape(-1), minlength=size * rows).reshape(size, rows)
        yield slice(start, start + size), counts.astype(np.float64)


def ratios(numerators: Table, denominators: Table) -> Table:
    """Return the quotients; NaN where there is nothing to divide by.

    >>> ratios(np.array([1.0, 0.0]), np.array([4.0, 0.0])).tolist()
    [0.25, nan]
    """
    unknown = np.full_like(numerators, np.nan)
    return np.divide(numerators, denominators, out=unknown, where=denominators != 0.0)


def percentiles(values: Table, confidence: float) -> tuple[float, float]:
    """Return the two percentiles around the middle share ``confidence``; NaNs do not count.

    >>> percentiles(np.arange(101.0), 0.5)
    (25.0, 75.0)
    """
    known = values[~np.isnan(values)]
    if len(known) == 0:
        return np.nan, np.nan
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(known, [tail, 1.0 - tail])
    return float(low), float(high)
