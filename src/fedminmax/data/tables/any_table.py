"""Rows for a prediction, however they come: a file, a data frame of polars or pandas, columns."""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import polars as pl

from fedminmax.core.errors import InputError
from fedminmax.data.tables.file_format import PLAIN, FileFormat
from fedminmax.data.tables.read_file import Table, read_table

SOURCE = "the given table"
# Numpy's kinds of booleans and numbers, which polars takes as they are, and of times.
PLAIN_KINDS, TIMES = "biuf", "M"


def table_from(data: Any, wanted: Sequence[str], file_format: FileFormat = PLAIN) -> Table:
    """Return the rows as a table; ``wanted`` columns decide between delimiters of a file.

    >>> table_from({"age": [30, 41]}, ["age"]).title
    'the given table (2 rows)'
    """
    if isinstance(data, str | PathLike):
        return read_table(Path(data), wanted, file_format)
    frame = _frame(data)
    if len(frame) == 0:
        raise InputError(f"{SOURCE} has no rows; give at least one")
    return Table(SOURCE, frame, pl.Series("row", range(1, len(frame) + 1), pl.Int64))


def _frame(data: Any) -> pl.DataFrame:
    if isinstance(data, pl.DataFrame):
        return data
    if isinstance(data, Mapping):
        return pl.DataFrame(data, strict=False)
    if hasattr(data, "columns") and hasattr(data, "iloc"):
        return pl.DataFrame([_series(str(name), data[name]) for name in data.columns])
    raise InputError(
        f"a {type(data).__name__} was given; give a file, a data frame of polars or pandas, or a "
        "dict of columns"
    )


def _series(name: str, column: Any) -> pl.Series:
    """Take over a column of pandas; the encoding reads texts, so all other values become such."""
    values = column.to_numpy()
    if values.dtype.kind in PLAIN_KINDS:
        return pl.Series(name, values)
    if values.dtype.kind == TIMES:
        return pl.Series(name, values.astype("datetime64[us]"))
    missing = column.isna().tolist()
    texts = [None if gone else str(value) for value, gone in zip(values, missing, strict=True)]
    return pl.Series(name, texts, dtype=pl.String)
