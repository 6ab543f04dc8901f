"""Values that are probably typos: of a target or group column with two numbers, and rare classes.

What is said names files and rows, and is for the screen alone.
"""

from collections.abc import Sequence

import polars as pl

from fedminmax.config.schema import PROPOSED_MISSING_VALUES, Target
from fedminmax.config.spellings import by_value
from fedminmax.core.errors import InputError
from fedminmax.core.text import counted, first_few
from fedminmax.data.tables.infer import is_quantity
from fedminmax.data.tables.notation import with_iso_dates, with_plain_numbers
from fedminmax.data.tables.parse_columns import text_of
from fedminmax.data.tables.read_file import FileTable

MAX_ROWS_NAMED = 3
# Classes with a typo, not a quantity: few values, and two of them in all but a few rows.
MAX_STRAYS = 20
MAX_STRAY_SHARE = 0.05


def check_strays(tables: Sequence[FileTable], pooled: pl.Series, what: str, fix: str) -> None:
    """Refuse numbers that hardly occur in a column of two others, with their rows."""
    strays, column = stray_values(pooled), pooled.name
    if not strays:
        return
    present = pooled.drop_nulls()
    usual = present.filter(~present.is_in(list(strays)))
    both = " or ".join(sorted(usual.unique().to_list()))
    raise InputError(
        f"{what} '{column}' is {both} in {len(usual):,} of {counted(len(present), 'row')}, and "
        f"something else in {_rows_with(tables, column, strays)}: correct them, or {fix}"
    )


def rare_classes(
    tables: Sequence[FileTable], pooled: pl.Series, target: Target, minimum: int
) -> tuple[str, ...]:
    """Say which classes have so few rows that they may be typos."""
    if target.is_quantity:
        return ()
    counts = dict(pooled.drop_nulls().value_counts(name="rows").rows())
    return tuple(
        f"class '{name}' has {counted(counts[name], 'row')} "
        f"({_rows_with(tables, target.column, [name])}): if it is a typo, correct it"
        for name in target.classes
        if counts[name] < minimum <= max(counts.values())
    )


def _rows_with(tables: Sequence[FileTable], column: str, values: Sequence[str]) -> str:
    """Say in which rows of which files a column has one of these values, the first few of many."""
    rows = [
        f"{table.source} row {row}"
        for table in tables
        for row in table.row_numbers.filter(
            by_value(plain_texts(table, column)).is_in(list(values))
        )
    ]
    return first_few(rows, MAX_ROWS_NAMED)


def stray_values(text: pl.Series) -> tuple[str, ...]:
    """Return the numbers that hardly occur in a column of two others, which are probably typos.

    >>> stray_values(pl.Series(["0", "1"] * 50 + ["0.5"])), stray_values(pl.Series(["0", "1", "2"]))
    (('0.5',), ())
    """
    counts = text.drop_nulls().value_counts(sort=True, name="rows")
    if not 2 < len(counts) <= MAX_STRAYS or not is_quantity(counts[text.name]):
        return ()
    strays, few = counts[2:], MAX_STRAY_SHARE * int(counts["rows"].sum())
    is_stray = int(strays["rows"].sum()) <= few < int(counts["rows"][1])
    return tuple(strays[text.name].to_list()) if is_stray else ()


def plain_texts(table: FileTable, column: str) -> pl.Series:
    """Return a column as texts, with numbers and dates in plain notation."""
    text = text_of(table.frame[column], PROPOSED_MISSING_VALUES)
    return with_iso_dates(with_plain_numbers(text, table.format), table.format)
