"""Bins of number columns that sites agree on from counts alone, exactly as from pooled records.

The cell of a value v at level e is floor(v / 2^e), which floating-point numbers compute without
rounding. Sites count their values in the cells of a first grid around the mean; cells in which many
records are, over all sites together, are split in 64, twice at most, and counted again. Counts are
sums, so every partition of the records gives the same ones. A value that many records share stays
alone in a narrow cell, while values of which there are few are never looked at closely.

Bins are made of the counts: one per cell where few cells are occupied, otherwise bins of about as
many records each, in which a shared value has a bin of its own (as in the histograms of EBM; Lou,
Caruana, Gehrke, Hooker 2013). An edge is a short number in the gap between two occupied cells; if
cells touch, it is the point of the grid where they do. Both follow from counts, not from values.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedminmax.core.exact_sums import ExactSums

Counts = NDArray[np.int64]
Values = NDArray[np.float64]

MIN_MAX_BINS, MAX_BINS = 32, 128
# Codes of one category column, and of all columns together without pairs.
MAX_CATEGORIES = 1_000
MAX_CODES = 4_000
# Bins of all columns together, most of which have no effect of their own.
MAX_FINE_BINS = 16_000
# Of all columns together in few records, and the records behind each further code.
MIN_MAX_CODES, RECORDS_PER_CODE = 1_000, 10
MIN_CODES = 8
# Cells of the first grid for each bin, and how many parts a full cell is split into.
CELLS_PER_BIN = 8
PARTS_LOG2 = 6
PARTS = 2**PARTS_LOG2
REFINEMENTS = 2
# The first grid reaches this many deviations from the mean; fewer than one record in a thousand is
# beyond (Chebyshev), so that the cells at its ends, which count those, are never full.
REACH = 32
# A bin has this many records, the usual minimum of statistical offices (Hundepool et al.:
# Statistical Disclosure Control, 2012). With 10, rare values share bins: on Adult, where rare
# capital gains tell a lot, the mean Brier score is then 1% higher.
MIN_RECORDS = 3
# Values are counted in portions that stay in a core's cache.
PORTION = 2**15
# Levels at which cells of all three grids have ends that are ordinary floating-point numbers.
MIN_LEVEL, MAX_LEVEL = -1000, 1000


@dataclass(frozen=True)
class Grid:
    """The cells in which the values of one column are counted.

    The first grid has ``cells`` cells of width 2^``level``, of which the first is number ``first``;
    values beyond count in the cells at its ends. ``splits`` are, for each refinement, the numbers
    of the cells that are split, ascending.
    """

    column: str
    level: int
    first: int
    cells: int
    splits: tuple[tuple[int, ...], ...] = ()

    @property
    def numbers(self) -> int:
        """How many counts the last refinement asks for; without one, the first grid."""
        return len(self.splits[-1]) * PARTS if self.splits else self.cells

    def faults(self) -> list[str]:
        """Say what no agreed rule makes: cells that are too narrow or too many."""
        return [
            text
            for is_wrong, text in (
                (not MIN_LEVEL <= self.level <= MAX_LEVEL, "no possible width of cells"),
                (not CELLS_PER_BIN < self.cells <= MAX_BINS * CELLS_PER_BIN, "no possible cells"),
                (len(self.splits) > REFINEMENTS, f"more than {REFINEMENTS} refinements"),
                (not self._splits_are_cells(), "splits of cells that it does not have"),
                (
                    any(len(split) > most_splits(self.cells) for split in self.splits),
                    "too many splits",
                ),
            )
            if is_wrong
        ]

    def _splits_are_cells(self) -> bool:
        # Not those at the ends, which count values of any size.
        parents: range | set[int] = range(self.first + 1, self.first + self.cells - 1)
        for split in self.splits:
            if list(split) != sorted(set(split)) or any(cell not in parents for cell in split):
                return False
            parents = {cell * PARTS + part for cell in split for part in range(PARTS)}
        return True


def most_splits(cells: int) -> int:
    """Return how many cells of a column one refinement can split."""
    return cells // 2


def first_grid(column: str, sums: ExactSums, bins: int) -> Grid:
    """Return the grid around the mean of a column that varies, for at most this many bins."""
    cells = bins * CELLS_PER_BIN
    level = math.frexp(sums.deviation)[1] + math.ceil(math.log2(2 * REACH / cells))
    level = min(max(level, MIN_LEVEL), MAX_LEVEL)
    # In floating-point numbers: the difference is one, too, however large the mean is.
    first = math.floor(math.ldexp(sums.mean, -level)) - float(cells // 2)
    return Grid(column, level, int(first), cells)


def count_cells(values: Values, grid: Grid) -> Counts:
    """Return how many values are in each cell of the last refinement; NaN is in none.

    >>> grid = Grid("age", level=2, first=0, cells=3)
    >>> count_cells(np.array([-5.0, 3.0, 4.0, 50.0, np.nan]), grid).tolist()
    [2, 1, 1]
    >>> count_cells(np.array([4.0, 4.0, 7.9]), replace(grid, splits=((1,),))).nonzero()[0].tolist()
    [0, 62]
    """
    counts = np.zeros(grid.numbers + 1, np.int64)
    for start in range(0, len(values), PORTION):
        portion = values[start : start + PORTION]
        cells = _cell_of(portion[~np.isnan(portion)], grid)
        counts += np.bincount(cells, minlength=len(counts))
    return counts[1:]


def _cell_of(values: Values, grid: Grid) -> NDArray[np.int64]:
    """Return the position of each value's cell in the last refinement, from 1; 0 is in none."""
    level = grid.level - len(grid.splits) * PARTS_LOG2
    numbers = np.floor(values * math.ldexp(1.0, -level))
    if not grid.splits:
        return 1 + np.clip(numbers - float(grid.first), 0, grid.cells - 1).astype(np.int64)
    # Infinity is larger than the number of any cell, and none.
    split = np.array([*grid.splits[-1], math.inf], np.float64)
    parents = np.floor(numbers / PARTS)
    position = np.searchsorted(split, parents)
    part = (numbers - PARTS * parents).astype(np.int64)
    return np.where(split[position] == parents, 1 + position * PARTS + part, 0)


def refined(grid: Grid, counts: Sequence[Counts]) -> Grid:
    """Return the grid with the full cells of its last refinement split."""
    numbers, latest = _cell_numbers(grid, len(grid.splits)), counts[-1]
    # The cells at the ends are never full, unless the counts are false.
    inner = slice(None) if grid.splits else slice(1, -1)
    full = latest[inner] > _full(grid, counts)
    return replace(grid, splits=(*grid.splits, tuple(numbers[inner][full].astype(int).tolist())))


def _full(grid: Grid, counts: Sequence[Counts]) -> float:
    """Return the count above which a cell is split: it could become two bins.

    Where more cells are occupied than there may be bins, quantiles are cut, and only cells with a
    fair part of the records matter.
    """
    at_least = 2 * MIN_RECORDS
    if len(_occupied(grid, counts)[0]) <= grid.cells // CELLS_PER_BIN:
        return at_least
    return max(at_least, int(counts[0].sum()) / most_splits(grid.cells))


def _cell_numbers(grid: Grid, refinement: int) -> Values:
    if refinement == 0:
        return float(grid.first) + np.arange(grid.cells, dtype=np.float64)
    split: Values = np.array(grid.splits[refinement - 1], np.float64)
    return np.ravel(split[:, None] * PARTS + np.arange(PARTS))


def counts_fault(grid: Grid, counts: Sequence[Counts], records: int) -> str | None:
    """Say why counts, the last of which are new, are impossible; None if they are possible."""
    *_, latest = counts
    if len(latest) != grid.numbers or bool((latest < 0).any()):
        return f"other cells of '{grid.column}' than requested"
    if not grid.splits:
        is_whole = int(latest.sum()) == records
    else:
        refinement = len(grid.splits) - 1
        parents = np.isin(_cell_numbers(grid, refinement), grid.splits[-1])
        parts = latest.reshape(-1, PARTS).sum(axis=1)
        is_whole = bool((parts == counts[refinement][parents]).all())
    return None if is_whole else f"counts of '{grid.column}' that do not add up"


@dataclass(frozen=True)
class ColumnBins:
    """The edges between the bins of a column, the bin of its median, and which bins are nodes.

    Without nodes all bins have effects of their own (``core.additive.model.Block``).
    """

    edges: tuple[float, ...]
    median: int
    nodes: tuple[int, ...] = ()


def bins_of(grid: Grid, counts: Sequence[Counts], most_nodes: int = MAX_BINS) -> ColumnBins:
    """Return the bins that follow from the counts of all refinements."""
    starts, ends, records = _occupied(grid, counts)
    most = grid.cells // CELLS_PER_BIN
    total = int(records.sum())
    labels = np.arange(len(records)) if len(records) <= most else _labels(records, most)
    labels = _joined(labels, records, most, max(1, min(MIN_RECORDS, total // 4)))
    cuts = np.flatnonzero(np.diff(labels))
    edges = tuple(
        short_number(end, start)
        for end, start in zip(ends[cuts].tolist(), starts[cuts + 1].tolist(), strict=True)
    )
    in_bins = np.bincount(labels, records).astype(np.int64)
    median = int(np.searchsorted(np.cumsum(in_bins), total / 2))
    return ColumnBins(edges, median, _nodes(in_bins, most_nodes))


def _nodes(records: Counts, most: int) -> tuple[int, ...]:
    """Return the bins with effects of their own; none if all have.

    These are the ends; bins with more than their share of the records and those beside them, where
    an effect may jump; and quantiles of the rest.

    >>> _nodes(np.array([5] * 9), 5), _nodes(np.array([90, *[5] * 9]), 5)
    ((0, 2, 4, 6, 8), (0, 1, 4, 6, 9))
    """
    last = len(records) - 1
    if last < most:
        return ()
    nodes = {0, last}
    for heavy in np.argsort(-records, kind="stable").tolist():
        around = nodes | {max(heavy - 1, 0), heavy, min(heavy + 1, last)}
        if int(records[heavy]) * most <= 2 * int(records.sum()) or len(around) > most:
            break
        nodes = around
    rest = np.where(np.isin(np.arange(last + 1), list(nodes)), 0, records)
    steps = np.arange(1, most - len(nodes) + 1) / (most - len(nodes) + 1)
    return tuple(sorted(nodes | {*np.searchsorted(np.cumsum(rest), steps * rest.sum()).tolist()}))


def _occupied(grid: Grid, counts: Sequence[Counts]) -> tuple[Values, Values, Counts]:
    """Return start, end and count of each occupied cell that is not split, ascending."""
    parts = []
    for refinement, counted in enumerate(counts):
        numbers = _cell_numbers(grid, refinement)
        kept = counted > 0
        if refinement < len(grid.splits):
            kept &= ~np.isin(numbers, np.array(grid.splits[refinement], np.float64))
        level = grid.level - refinement * PARTS_LOG2
        numbers = numbers[kept]
        parts.append((np.ldexp(numbers, level), np.ldexp(numbers + 1.0, level), counted[kept]))
    starts, ends, records = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    order = np.argsort(starts)
    return starts[order], ends[order], records[order]


def _labels(records: Counts, most: int) -> NDArray[np.int64]:
    """Return the bin of each cell: shared values by themselves, others cut at quantiles."""
    alone = np.zeros(len(records), dtype=bool)
    while True:
        left = max(most - int(alone.sum()), 1)
        more = ~alone & (records * left > records[~alone].sum())
        if not more.any():
            break
        alone |= more
    share = max(int(records[~alone].sum()), 1) / left
    # Cells between two that are alone are a run, which is cut into bins of about one share each.
    runs = np.cumsum(alone)
    light = np.where(alone, 0, records)
    before = np.cumsum(light) - light
    sizes = np.bincount(runs, light)
    pieces = np.maximum(np.rint(sizes / share), 1.0)
    within = before - (np.cumsum(sizes) - sizes)[runs] + light / 2
    piece = np.floor(within * (pieces / np.maximum(sizes, 1.0))[runs])
    piece = np.where(alone, -1, np.minimum(piece, pieces[runs] - 1))
    changed = (np.diff(runs) != 0) | (np.diff(piece) != 0)
    return np.concatenate([[0], np.cumsum(changed)])


def _joined(labels: NDArray[np.int64], records: Counts, most: int, least: int) -> NDArray[np.int64]:
    """Join the smallest bin to its smaller neighbour until none is too small and few are left."""
    sizes = np.bincount(labels, records).astype(np.int64).tolist()
    members = np.bincount(labels).tolist()
    while len(sizes) > 1 and (min(sizes) < least or len(sizes) > most):
        smallest = sizes.index(min(sizes))
        left, right = smallest - 1, smallest + 1
        if left < 0 or (right < len(sizes) and sizes[right] < sizes[left]):
            left, right = smallest, right
        else:
            left, right = left, smallest
        sizes[left : right + 1] = [sizes[left] + sizes[right]]
        members[left : right + 1] = [members[left] + members[right]]
    return np.repeat(np.arange(len(sizes)), members)


def most_bins(records: int) -> int:
    """Return how many bins a column may have: in few records, more would only cost time.

    >>> most_bins(100), most_bins(1600), most_bins(50_000)
    (32, 80, 128)
    """
    return min(max(MIN_MAX_BINS, math.isqrt(4 * records)), MAX_BINS)


def fine_bins(most: int, columns: int, records: int) -> int:
    """Return how many bins a column may have, of which so many have effects of their own.

    >>> fine_bins(10, 100, 2_000), fine_bins(100, 40, 10**5), fine_bins(2, 1_000, 10**5)
    (89, 128, 16)
    """
    return min(max(most, MAX_FINE_BINS // columns), most_bins(records))


def codes_each(wanted: Sequence[int], others: int, records: int) -> int | None:
    """Return how many codes a column may have if each wants so many; None if all have too many.

    ``others`` are codes of missing and unseen values. Columns of few records have few codes, but a
    column has at least eight if it wants them and all have room.

    >>> codes_each([128] * 40, 0, 10**5), codes_each([128] * 10, 0, 10**5)
    (100, 1000)
    >>> codes_each([90] * 100, 0, 2_000), codes_each([128] * 4000, 0, 10**5)
    (10, None)
    """

    def codes(most: int) -> int:
        return others + sum(min(size, most) for size in wanted)

    if codes(2) > MAX_CODES:
        return None
    room = min(max(MIN_MAX_CODES, records // RECORDS_PER_CODE), MAX_CODES)
    most = MAX_CATEGORIES
    while (codes(most) > room and most > MIN_CODES) or codes(most) > MAX_CODES:
        most -= 1
    return most


def short_number(low: float, high: float) -> float:
    """Return a number with few digits in the middle half of a gap; ``low`` if there is no gap.

    >>> [short_number(*gap) for gap in [(37.125, 38.0), (0.125, 114.0), (-3.0, -2.9375), (5, 5)]]
    [37.5, 50.0, -2.97, 5.0]
    """
    gap = high - low
    if not gap > 0.0:
        return float(low)
    middle = low + gap / 2
    power = math.floor(math.log10(gap))
    for exponent in (power + 1, power, power - 1):
        for factor in (1.0, 0.5):
            multiple = round(middle / (factor * 10.0**exponent))
            # Dividing by a power of ten gives the number that is closest to its decimal.
            scaled = multiple * factor
            number = scaled * 10.0**exponent if exponent >= 0 else scaled / 10.0**-exponent
            if abs(number - middle) <= gap / 4:
                return number
    return middle
