"""Read one file into one table: CSV as text, Parquet with its types; errors name the file.

The first bytes determine the file type: a CSV file may be gzipped, whatever its name. Rows for a
prediction may also be a data frame of polars or pandas, or columns (``table_from``).
"""

import csv
import gzip
import io
import re
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import polars as pl

from fedminmax.config.file_format import AUTO, PLAIN, FileFormat
from fedminmax.core.errors import InputError
from fedminmax.core.text import counted, did_you_mean, quoted
from fedminmax.data.tables.notation import BYTE_ORDER_MARKS, guess_encoding, to_utf8
from fedminmax.data.tables.odd_rows import Oddity, OddRows

DELIMITERS = (",", ";", "\t", "|")
CSV_SUFFIXES = (".csv", ".tsv", ".txt")
GZIP_SUFFIX = ".gz"
PARQUET_SUFFIXES = (".parquet", ".pq")
SHEET_SUFFIXES = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods", ".numbers")
GZIP_MARK, PARQUET_MARK, ZIP_MARK = b"\x1f\x8b", b"PAR1", b"PK\x03\x04"
NUL = "\0"
MICROSECONDS_PER_DAY = 86_400_000_000
# Excel may write the delimiter into a line of its own above the header.
DELIMITER_LINE = re.compile(rb'^"?sep=(.)"?\r?\n', re.IGNORECASE)
SOURCE = "the given table"
# Numpy's kinds of booleans and numbers, which polars takes as they are, and of times.
PLAIN_KINDS, TIMES = "biuf", "M"


@dataclass(frozen=True, eq=False)
class FileTable:
    """The rows of a file; ``row_numbers`` count from 1, without the header.

    ``odd`` rows may be damaged. ``format`` defines how texts are parsed as numbers and dates.
    """

    source: str
    frame: pl.DataFrame
    row_numbers: pl.Series
    odd: tuple[OddRows, ...] = ()
    format: FileFormat = PLAIN

    @property
    def title(self) -> str:
        """The table's name in messages."""
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
    """Read a file; ``wanted`` columns decide between delimiters."""
    check_path(path)
    try:
        if path.suffix.lower() in PARQUET_SUFFIXES:
            return _numbered(path, _plain_times(pl.read_parquet(path)), file_format)
        return _read_csv(path, wanted, file_format)
    except pl.exceptions.PolarsError as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path} cannot be read ({reason}); write the file again") from error


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
    content = _content(path)
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


def _read_csv(path: Path, wanted: Sequence[str], file_format: FileFormat) -> FileTable:
    content = to_utf8(path, _content(path), file_format.encoding)
    if b"\r" in content and b"\n" not in content.rstrip():
        # The line ends of old Macs; the last one may be another.
        content = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    own_delimiter = DELIMITER_LINE.match(content)
    if own_delimiter is not None:
        content = content[own_delimiter.end() :]
        if file_format.delimiter == AUTO:
            file_format = replace(file_format, delimiter=own_delimiter[1].decode())
    frame, delimiter = _parsed(path, content, wanted, file_format.delimiter)
    rows = pl.Series("row", range(1, len(frame) + 1), pl.Int64)
    if frame.width > 1 and frame[:, -1].null_count():
        blank = _blank_rows(path, content, frame, delimiter)
        if blank.any():
            frame, rows = frame.filter(~blank), rows.filter(~blank)
    damaged = _nul_rows(path, frame, rows) if NUL.encode() in content else ()
    return _numbered(path, frame, replace(file_format, delimiter=delimiter), rows, damaged)


def _content(path: Path) -> bytes:
    content = path.read_bytes()
    if not content.startswith(GZIP_MARK):
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} is damaged: gzip cannot unpack it; write it again") from error


def _blank_rows(path: Path, content: bytes, frame: pl.DataFrame, delimiter: str) -> pl.Series:
    """Return which rows are blank lines, or empty rows at the end; refuse rows that are too short.

    An empty row between others, such as ";;", is a row of missing values.
    """
    empty = frame.select(pl.all_horizontal(pl.all().is_null())).to_series()
    with _text(content) as file:
        try:
            counts = [len(fields) for fields in csv.reader(file, delimiter=delimiter)]
        except csv.Error:
            counts = []
    widths = pl.Series(counts[1:], dtype=pl.Int64)
    if len(widths) != len(frame):
        # The two readers disagree about quotes; then only empty rows are certain.
        return empty
    last = len(empty) - (empty.reverse().arg_min() or 0) if not empty.all() else 0
    at_end = empty & (pl.Series(range(len(empty)), dtype=pl.Int64) >= last)
    short = (widths > 0) & (widths < frame.width) & ~at_end
    if short.any():
        number = short.arg_max() or 0
        raise InputError(
            f"{path}: row {number + 1} has {counted(int(widths[number]), 'field')}, the header has "
            f"{frame.width} ({counted(int(short.sum()), 'such row')}); the file may be cut off: "
            "write it again"
        )
    return at_end | (empty & (widths == 0))


def _nul_rows(path: Path, frame: pl.DataFrame, rows: pl.Series) -> tuple[OddRows, ...]:
    having = frame.select(
        pl.any_horizontal(pl.all().str.contains(NUL, literal=True).fill_null(value=False))
    ).to_series()
    if not having.any():
        return ()
    first = int(rows[having.arg_max() or 0])
    return (OddRows(Oddity.NUL, str(path), "", int(having.sum()), first),)


def _parsed(
    path: Path, content: bytes, wanted: Sequence[str], delimiter: str
) -> tuple[pl.DataFrame, str]:
    """Return the rows and the delimiter that was used."""
    header = _header_line(path, content)
    separator = _choose_delimiter(header, wanted) if delimiter == AUTO else delimiter
    columns = _fields(header, separator)
    for column, times in Counter(columns).items():
        if times > 1:
            raise InputError(f"{path} has two columns '{column}'; rename one of them")
    if delimiter != AUTO:
        _check_delimiter(path, header, wanted, delimiter)
    try:
        frame = pl.read_csv(content, separator=separator, infer_schema=False)
    except pl.exceptions.ComputeError:
        _refuse_long_row(path, content, separator, len(columns))
        _refuse_open_quote(path, content)
        raise
    return frame.rename(dict(zip(frame.columns, columns, strict=True))), separator


def _header_line(path: Path, content: bytes) -> str:
    with _text(content) as file:
        line = file.readline()
    if not content.strip():
        raise InputError(f"{path} is empty; it needs a header line and rows")
    if not line.strip():
        raise InputError(f"{path} begins with a blank line; its first line must be the header")
    if line.count('"') % 2:
        raise InputError(
            f"{path}: the header has a line break within quotes, or a quote that is not closed; "
            "write each column's name on one line"
        )
    return line


def _refuse_open_quote(path: Path, content: bytes) -> None:
    """Report the first line with an odd number of quotes, if there is one."""
    for number, line in enumerate(content.splitlines()):
        if line.count(b'"') % 2:
            raise InputError(
                f'{path}: line {number + 1} has a quote (") that does not belong to a pair; double '
                "quotes within texts, and put such texts in quotes"
            )


def _text(content: bytes) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", newline="")


def _fields(line: str, delimiter: str) -> list[str]:
    return [field.strip() for field in next(csv.reader(io.StringIO(line), delimiter=delimiter))]


def _choose_delimiter(header: str, wanted: Sequence[str]) -> str:
    """Prefer the delimiter that gives the most wanted columns, then the most columns."""

    def merit(delimiter: str) -> tuple[int, int]:
        fields = _fields(header, delimiter)
        return len(set(fields) & set(wanted)), len(fields)

    return max(DELIMITERS, key=merit)


def _check_delimiter(path: Path, header: str, wanted: Sequence[str], given: str) -> None:
    better = _choose_delimiter(header, wanted)
    columns, possible = (_fields(header, d) for d in (given, better))
    if not set(wanted) & set(columns) and set(wanted) & set(possible):
        raise InputError(
            f"{path}: delimiter {given!r} gives {counted(len(columns), 'column')}, "
            f"{quoted(columns)}; set delimiter = {better!r} in [data], which gives {len(possible)}"
        )


def _refuse_long_row(path: Path, content: bytes, delimiter: str, width: int) -> None:
    """Report the first row with more fields than the header, if there is one."""
    with _text(content) as file:
        for number, fields in enumerate(csv.reader(file, delimiter=delimiter)):
            if len(fields) > width:
                raise InputError(
                    f"{path}: row {number} has {len(fields)} fields, the header has {width}; "
                    f"quote texts that contain {delimiter!r}, and remove lines above the header"
                )


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
