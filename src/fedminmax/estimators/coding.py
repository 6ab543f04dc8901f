"""Columns of an estimator's table as codes for an additive model.

Numbers have bins, chosen as sites in a federation would choose them (``data.tables.bins``); missing
values have a code of their own if training rows have some, otherwise that of the median's bin. Text
and categories of data frames have one code each; rare and unseen values share the last one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedminmax.core.additive.model import (
    DIRECTIONS,
    Block,
    Pair,
    codes_with_pairs,
    positions_of,
)
from fedminmax.core.errors import InputError
from fedminmax.core.exact_sums import exact_sums
from fedminmax.core.text import did_you_mean, is_whole
from fedminmax.data.frames import is_missing
from fedminmax.data.tables.bins import (
    MAX_CATEGORIES,
    MAX_CODES,
    REFINEMENTS,
    ColumnBins,
    bins_of,
    codes_each,
    count_cells,
    fine_bins,
    first_grid,
    most_bins,
    refined,
)

Table = NDArray[np.float64]
Codes = NDArray[np.int64]
NUMBERS, DATES = "biuf", "M"
# Stands for a value that was not in the training rows.
UNSEEN = -1.0


@dataclass(frozen=True)
class NumberColumn:
    """The bins of a column of numbers, and the code of a missing value."""

    edges: tuple[float, ...]
    fallback: int
    flags_missing: bool
    monotone: str | None = None
    nodes: tuple[int, ...] = ()

    @property
    def block(self) -> Block:
        """How many codes there are; two bins have no order that could be smooth."""
        bins = len(self.edges) + 1
        rising = bins * DIRECTIONS[self.monotone] if self.monotone else 0
        if bins <= 2:
            return Block(bins + self.flags_missing, rising=rising)
        places = positions_of(self.edges)
        return Block(bins + self.flags_missing, bins, 0.0, places, rising, self.nodes)

    def codes(self, values: Table) -> Codes:
        """Return the code of each value."""
        missing = len(self.edges) + 1 if self.flags_missing else self.fallback
        bins = np.searchsorted(self.edges, values, side="right")
        return np.where(np.isnan(values), missing, bins)


@dataclass(frozen=True)
class CategoryColumn:
    """The code of each numbered category; the last code is that of all other values."""

    code_of_category: tuple[int, ...]
    flags_missing: bool

    @property
    def block(self) -> Block:
        """How many codes there are."""
        return Block(2 + max(self.code_of_category, default=-1) + self.flags_missing)

    def codes(self, values: Table) -> Codes:
        """Return the code of each number of a category, of NaN and of ``UNSEEN``."""
        others = self.block.size - 1
        missing = others - 1 if self.flags_missing else others
        listed = len(self.code_of_category)
        table = np.array([*self.code_of_category, missing, others])
        # Rare categories have the code -1 here, which is the last.
        table = np.where(table < 0, others, table)
        numbers = np.where(np.isnan(values), listed, np.where(values < 0, listed + 1, values))
        codes: Codes = table[numbers.astype(np.int64)]
        return codes


@dataclass(frozen=True)
class TableCodes:
    """How rows of a table become codes: one for each column, then one for each pair."""

    columns: tuple[NumberColumn | CategoryColumn, ...]
    names: tuple[str, ...]
    _: KW_ONLY
    pairs: tuple[Pair, ...] = ()

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks of the columns, without smoothing."""
        return tuple(column.block for column in self.columns)

    @property
    def block_names(self) -> tuple[str, ...]:
        """The names of all columns and pairs."""
        pairs = (f"{self.names[pair.first]} and {self.names[pair.second]}" for pair in self.pairs)
        return (*self.names, *pairs)

    def apply(self, table: NDArray[Any]) -> NDArray[Any]:
        """Return the codes of all rows [rows, columns and pairs]."""
        codes = [
            column.codes(values.astype(np.float64))
            for column, values in zip(self.columns, table.T, strict=True)
        ]
        narrow = torch.from_numpy(np.stack(codes, axis=1).astype(np.int16))
        return codes_with_pairs(narrow, self.pairs).numpy()

    def with_directions(self, monotone: Mapping[Any, str]) -> "TableCodes":
        """Return the same columns; the effects of these may only go "up", or "down"."""
        columns = list(self.columns)
        for key, direction in monotone.items():
            place = self.names.index(key) if key in self.names else key
            column = columns[place] if is_whole(place, 0) and place < len(columns) else None
            if column is None:
                raise InputError(
                    f"monotone has {key!r}, which is no column; "
                    f"{did_you_mean(str(key), self.names)}"
                )
            if not isinstance(column, NumberColumn):
                raise InputError(
                    f"monotone has {key!r}, whose values are text or categories; only numbers and "
                    "dates have an order: drop it"
                )
            columns[place] = replace(column, monotone=direction)
        return replace(self, columns=tuple(columns))

    def with_pairs(self, pairs: Sequence[Pair]) -> "TableCodes":
        """Return the same columns with these pairs."""
        return replace(self, pairs=tuple(pairs))


def choose_codes(
    table: NDArray[Any], names: Sequence[str], categories: dict[int, tuple[str, ...]]
) -> TableCodes:
    """Choose bins and categories from training rows; ``categories`` are by column.

    >>> choose_codes(np.array([[1.0], [2.0], [2.0], [7.0]]), ["dose"], {}).columns[0].edges
    (2.0, 5.0)
    """
    missing, bins = np.isnan(table).any(axis=0), most_bins(len(table))
    wanted = [
        min(len(categories[place]), MAX_CATEGORIES) if place in categories else bins
        for place in range(table.shape[1])
    ]
    most = codes_each(wanted, int(missing.sum()) + len(categories), len(table))
    if most is None:
        raise InputError(
            f"an additive model has at most {MAX_CODES:,} effects, too few for {len(wanted):,} "
            "columns; give model='linear', or fewer columns"
        )
    fine = fine_bins(most, len(wanted), len(table))
    columns: list[NumberColumn | CategoryColumn] = []
    for place, values in enumerate(table.T):
        present = values[~np.isnan(values)].astype(np.float64)
        if place in categories:
            kept = _kept_categories(present, len(categories[place]), most)
            columns.append(CategoryColumn(kept, bool(missing[place])))
        else:
            chosen = pooled_bins(names[place], present, fine, most)
            # All values may be missing.
            flagged = bool(missing[place] and len(present))
            columns.append(NumberColumn(chosen.edges, chosen.median, flagged, nodes=chosen.nodes))
    return TableCodes(tuple(columns), tuple(names))


def pooled_bins(name: str, values: Table, bins: int, most_nodes: int) -> ColumnBins:
    """Return the bins of a column whose values are all at hand."""
    sums = exact_sums(np.ascontiguousarray(values))
    if not sums.count or sums.variance == 0:
        return ColumnBins((), 0)
    grid = first_grid(name, sums, bins)
    counts = [count_cells(values, grid)]
    for _ in range(REFINEMENTS):
        grid = refined(grid, counts)
        counts.append(count_cells(values, grid))
    return bins_of(grid, counts, most_nodes)


def _kept_categories(present: Table, listed: int, most: int) -> tuple[int, ...]:
    """Return the code of each category: the most frequent ones have their own, others -1."""
    counts = np.bincount(present.astype(np.int64), minlength=listed)
    frequent = np.zeros(listed, dtype=bool)
    frequent[np.argsort(-counts, kind="stable")[:most]] = True
    return tuple(np.where(frequent, np.cumsum(frequent) - 1, -1).tolist())


def text_columns(frame: Any) -> dict[int, Any]:
    """Return the columns of a data frame that are neither numbers nor dates, by position."""
    return {
        place: frame[name]
        for place, name in enumerate(frame.columns)
        if not _is_number(frame[name]) and _as_array(frame[name]).dtype.kind != DATES
    }


def numbers_of_frame(frame: Any, categories: dict[int, tuple[str, ...]]) -> Table:
    """Return a frame as numbers: dates in days since 1970, categories by their numbers."""
    columns = []
    for place, name in enumerate(frame.columns):
        column = frame[name]
        if place in categories:
            columns.append(_category_numbers(column, categories[place]))
        elif _is_number(column):
            columns.append(_plain_numbers(column))
        else:
            columns.append(_days(column))
    return np.stack(columns, axis=1)


def categories_of(column: Any) -> tuple[str, ...]:
    """Return the values of a column as texts, in their order."""
    values = _as_array(column)
    return tuple(sorted({str(value) for value in values[~is_missing(values)]}))


def _category_numbers(column: Any, categories: tuple[str, ...]) -> Table:
    values = _as_array(column)
    numbers = {category: float(number) for number, category in enumerate(categories)}
    return np.array(
        [
            np.nan if absent else numbers.get(str(value), UNSEEN)
            for value, absent in zip(values, is_missing(values), strict=True)
        ],
        dtype=np.float64,
    )


def _is_number(column: Any) -> bool:
    kind = getattr(column.dtype, "kind", None)
    if kind is not None:
        return kind in NUMBERS
    return bool(column.dtype.is_numeric()) or _as_array(column).dtype.kind in NUMBERS


def _plain_numbers(column: Any) -> Table:
    values = _as_array(column)
    if values.dtype.kind in NUMBERS:
        return values.astype(np.float64)
    return np.where(is_missing(values), np.nan, values).astype(np.float64)


def _days(column: Any) -> Table:
    values = _as_array(column)
    if values.dtype.kind != DATES:
        raise InputError(
            f"column {column.name!r} holds text or categories, but numbers when the model was "
            "fitted; give numbers"
        )
    seconds = values.astype("datetime64[ms]").astype(np.float64) / 1000.0
    return np.where(np.isnat(values), np.nan, seconds / 86_400.0)


def _as_array(column: Any) -> NDArray[Any]:
    values: NDArray[Any] = np.asarray(column)
    return values
