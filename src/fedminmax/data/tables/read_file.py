"""Read a file as a table: CSV as text, Parquet with its types; errors name the file.

The first bytes determine the file type: a CSV file may be gzipped, whatever its name. Rows for a
prediction may also be a data frame of polars or pandas, or columns (``table_from``).

A file larger than a piece is read in pieces, each a table of its own, so that memory does not
limit it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import polars as pl

from fedminmax.config.file_format import AUTO, PLAIN, FileFormat
from fedminmax.core.errors import InputError
from fedminmax.core.text import counted, did_you_mean
from fedminmax.data.tables.notation import BYTE_ORDER_MARKS, guess_encoding
from fedminmax.data.tables.odd_rows import OddRows
from fedminmax.data.tables.read_csv import DELIMITERS, contents, csv_pieces

CSV_SUFFIXES = (".csv", ".tsv", ".txt")
GZIP_SUFFIX = ".gz"
PARQUET_SUFFIXES = (".parquet", ".pq")
SHEET_SUFFIXES = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods", ".numbers")
PARQUET_MARK, ZIP_MARK = b"PAR1", b"PK\x03\x04"
MICROSECONDS_PER_DAY = 86_400_000_000
SOURCE = "the given table"
# A piece of a Parquet file.
PIECE_VALUES = 2**23
# Numpy's kinds of booleans and numbers, which polars takes as they are, and of times.
PLAIN_KINDS, TIMES = "biuf", "M"


@dataclass(frozen=True, eq=False)
class FileTable:
    """The rows of a file; ``row_numbers`` count from 1, without the header.

    ``odd`` rows may be damaged. ``format`` defines how texts are parsed as numbers and dates. A
    piece of a file is not ``whole``.
    """

    source: str
    frame: pl.DataFrame
    row_numbers: pl.Series
    odd: tuple[OddRows, ...] = ()
    format: FileFormat = PLAIN
    whole: bool = True

    @property
    def title(self) -> str:
        """The table's name in messages."""
        if not self.whole:
            first, last = self.row_numbers[0], self.row_numbers[-1]
            return f"{self.source} (rows {first:,} to {last:,})"
        return f"{self.source} ({counted(len(self.frame), 'row')})"

    def require(self, columns: Sequence[str], why: str) -> None:
        """Refuse the table if it lacks one of these columns."""
        kinds = dict(self.frame.schema)
        for column in columns:
            if column not in kinds:
                hint = did_you_mean(column, self.frame.columns)
                if self.frame.width == 1:
                    hint = (
                        f"its one column is '{self.frame.columns[0]}': if that is a whole line, "
                        "set its delimiter in [data]"
                    )
                raise InputError(f"{self.title} has no column '{column}', {why}; {hint}")
            kind = kinds[column]
            if not is_plain(kind):
                raise InputError(
                    f"{self.title}: column '{column}', {why}, holds {str(kind).lower()} and not "
                    "one value per row; split it into columns of single values, or choose another"
                )

    def first_missing(self, column: str, missing: pl.Series) -> str:
        """Say which row is the first without a value, and by which text if it has one."""
        position, row = self.first_row(missing)
        rows = counted(int(missing.sum()), "such row")
        text = str(self.frame[column][position] or "").strip()
        if not text:
            return f"row {row} is missing ({rows})"
        return f"row {row} is '{text}', which missing_values in [data] count as missing ({rows})"

    def first_row(self, mask: pl.Series) -> tuple[int, int]:
        """Return the position and the row number of the first true entry."""
        position = mask.arg_max() or 0
        return position, int(self.row_numbers[position])


def is_plain(kind: pl.DataType) -> bool:
    """Return whether a column of this type has one value per row, not a list or structure."""
    return not (kind.is_nested() or isinstance(kind, pl.Binary | pl.Object))


def name_without_ending(path: Path) -> str:
    """Return a file's name without the suffix of its format.

    >>> name_without_ending(Path("a/north.csv.gz")), name_without_ending(Path("a/v1.2.csv"))
    ('north', 'v1.2')
    """
    return Path(path.stem).stem if path.suffix.lower() == GZIP_SUFFIX else path.stem


def read_table(path: Path, wanted: Sequence[str], file_format: FileFormat = PLAIN) -> FileTable:
    """Read a file as one table; ``wanted`` columns decide between delimiters."""
    pieces = list(read_pieces(path, wanted, file_format))
    if len(pieces) == 1:
        return pieces[0]
    return replace(
        pieces[0],
        frame=pl.concat([piece.frame for piece in pieces], how="vertical"),
        row_numbers=pl.concat([piece.row_numbers for piece in pieces]),
        odd=tuple(odd for piece in pieces for odd in piece.odd),
        whole=True,
    )


def read_pieces(
    path: Path, wanted: Sequence[str], file_format: FileFormat = PLAIN
) -> Iterator[FileTable]:
    """Read a file piece by piece; a small one is a single piece."""
    check_path(path)
    try:
        if path.suffix.lower() in PARQUET_SUFFIXES:
            yield from _parquet_pieces(path, file_format)
        else:
            for piece in csv_pieces(path, wanted, file_format):
                own = replace(file_format, delimiter=piece.delimiter)
                table = _numbered(path, piece.frame, own, piece.row_numbers, piece.odd)
                yield replace(table, whole=piece.whole)
    except pl.exceptions.PolarsError as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path} cannot be read ({reason}); write the file again") from error


def _parquet_pieces(path: Path, file_format: FileFormat) -> Iterator[FileTable]:
    file = pl.scan_parquet(path)
    rows = int(file.select(pl.len()).collect().item())
    size = max(PIECE_VALUES // max(len(pl.read_parquet_schema(path)), 1), 1)
    if rows <= size:
        yield _numbered(path, _plain_times(pl.read_parquet(path)), file_format)
        return
    for start in range(0, rows, size):
        frame = _plain_times(file.slice(start, size).collect())
        numbers = pl.Series("row", range(start + 1, start + len(frame) + 1), pl.Int64)
        yield FileTable(str(path), frame, numbers, format=file_format, whole=False)


def check_path(path: Path) -> None:
    """Refuse a file that is not a table by its name or its first bytes."""
    endings = ", ".join((*CSV_SUFFIXES, f"{CSV_SUFFIXES[0]}{GZIP_SUFFIX}", *PARQUET_SUFFIXES))
    if path.is_dir():
        raise InputError(f"{path} is a folder; name the files in it that end in {endings}")
    ending = path.suffix.lower()
    if ending == GZIP_SUFFIX:
        ending = Path(path.stem).suffix.lower()
    if ending in SHEET_SUFFIXES:
        raise InputError(f"{path} is a spreadsheet; save its sheet as CSV in UTF-8 and give that")
    if ending not in CSV_SUFFIXES and path.suffix.lower() not in PARQUET_SUFFIXES:
        raise InputError(f"{path} has an unknown ending; give a file that ends in {endings}")
    if not path.is_file():
        raise InputError(f"{path} does not exist or is not a file; correct the path")
    with path.open("rb") as file:
        start = file.read(len(ZIP_MARK))
    if start == ZIP_MARK:
        raise InputError(
            f"{path} is an Excel or ZIP file by its content; save its table as CSV in UTF-8"
        )
    is_parquet = path.suffix.lower() in PARQUET_SUFFIXES
    if is_parquet != (start == PARQUET_MARK) and start:
        came, other = (
            ("not a Parquet file", ".csv") if is_parquet else ("a Parquet file", ".parquet")
        )
        raise InputError(
            f"{path} is {came} by its content; if that is right, rename it to end in {other}"
        )


def count_columns(path: Path) -> int:
    """Return about how many columns a file has, without reading its rows."""
    if path.suffix.lower() in PARQUET_SUFFIXES:
        return len(pl.read_parquet_schema(path))
    with path.open("rb") as file:
        start = file.readline()
    return max(start.count(mark.encode()) for mark in DELIMITERS) + 1


def found_encoding(path: Path) -> str:
    """Return the probable encoding of a text file; "auto" for UTF-8 or a byte-order mark."""
    check_path(path)
    if path.suffix.lower() in PARQUET_SUFFIXES:
        return AUTO
    content = b"".join(piece for piece, _ in contents(path, AUTO))
    return AUTO if content.startswith(tuple(BYTE_ORDER_MARKS)) else guess_encoding(content)


def _plain_times(frame: pl.DataFrame) -> pl.DataFrame:
    """Return times with a zone in UTC, and durations as numbers of days."""
    changed = []
    for column in frame:
        if isinstance(column.dtype, pl.Datetime) and column.dtype.time_zone is not None:
            in_utc = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
            changed.append(in_utc)
        elif isinstance(column.dtype, pl.Duration):
            changed.append(column.dt.total_microseconds() / MICROSECONDS_PER_DAY)
    return frame.with_columns(changed)


def _numbered(
    path: Path,
    frame: pl.DataFrame,
    file_format: FileFormat,
    rows: pl.Series | None = None,
    odd: tuple[OddRows, ...] = (),
) -> FileTable:
    if len(frame) == 0:
        raise InputError(f"{path} has a header but no rows; add rows or remove the file")
    every = pl.Series("row", range(1, len(frame) + 1), pl.Int64)
    return FileTable(str(path), frame, every if rows is None else rows, odd, file_format)


def table_from(data: Any, wanted: Sequence[str], file_format: FileFormat = PLAIN) -> FileTable:
    """Return the rows as a table; ``wanted`` columns decide between delimiters of a file.

    >>> table_from({"age": [30, 41]}, ["age"]).title
    'the given table (2 rows)'
    """
    if isinstance(data, str | PathLike):
        return read_table(Path(data), wanted, file_format)
    frame = _frame(data)
    if len(frame) == 0:
        raise InputError(f"{SOURCE} has no rows; give at least one")
    return FileTable(SOURCE, frame, pl.Series("row", range(1, len(frame) + 1), pl.Int64))


def _frame(data: Any) -> pl.DataFrame:
    if isinstance(data, pl.DataFrame):
        return _plain_times(data)
    if isinstance(data, Mapping):
        return pl.DataFrame(data, strict=False)
    if hasattr(data, "columns") and hasattr(data, "iloc"):
        names = [str(name) for name in data.columns]
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"{SOURCE} has two columns '{name}'; rename one of them")
        return pl.DataFrame([_series(str(name), data[name]) for name in data.columns])
    raise InputError(
        f"a {type(data).__name__} was given; give a file, a data frame of polars or pandas, or a "
        "dict of columns"
    )


def _series(name: str, column: Any) -> pl.Series:
    """Convert a pandas column; values other than numbers and times become texts."""
    values = column.to_numpy()
    if values.dtype.kind in PLAIN_KINDS:
        return pl.Series(name, values)
    if values.dtype.kind == TIMES:
        return pl.Series(name, values.astype("datetime64[us]"))
    missing = column.isna().tolist()
    texts = [None if gone else str(value) for value, gone in zip(values, missing, strict=True)]
    return pl.Series(name, texts, dtype=pl.String)
