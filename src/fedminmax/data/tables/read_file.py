"""One file into one table: CSV as text, Parquet as it is typed; every refusal names the file."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from fedminmax.core.errors import InputError
from fedminmax.data.tables.words import did_you_mean, listed

DELIMITERS = (",", ";", "\t", "|")
AUTO = "auto"
CSV_SUFFIXES = (".csv", ".tsv", ".txt")
PARQUET_SUFFIXES = (".parquet", ".pq")


@dataclass(frozen=True, eq=False)
class Table:
    """The rows of a file; ``row_numbers`` count from 1, without the header."""

    source: str
    frame: pl.DataFrame
    row_numbers: pl.Series

    @property
    def title(self) -> str:
        """How messages name the table."""
        return f"{self.source} ({len(self.frame):,} rows)"

    def require(self, columns: Sequence[str], why: str) -> None:
        """Refuse the table if it lacks one of these columns."""
        for column in columns:
            if column not in self.frame.columns:
                hint = did_you_mean(column, self.frame.columns)
                if self.frame.width == 1:
                    hint = (
                        f"its one column is '{self.frame.columns[0]}': if that is a whole line, "
                        "set its delimiter in [data]"
                    )
                raise InputError(f"{self.title} has no column '{column}', {why}; {hint}")

    def first_row(self, mask: pl.Series) -> tuple[int, int]:
        """Return the position and the row number of the first true entry."""
        position = mask.arg_max() or 0
        return position, int(self.row_numbers[position])


def read_table(path: Path, wanted: Sequence[str], delimiter: str = AUTO) -> Table:
    """Read a file; ``wanted`` columns decide between delimiters."""
    if path.suffix.lower() not in CSV_SUFFIXES + PARQUET_SUFFIXES:
        known = ", ".join(CSV_SUFFIXES + PARQUET_SUFFIXES)
        raise InputError(f"{path} has an unknown ending; give a file that ends in {known}")
    if not path.is_file():
        raise InputError(f"{path} does not exist or is no file; correct the path")
    try:
        if path.suffix.lower() in PARQUET_SUFFIXES:
            frame = pl.read_parquet(path)
        else:
            frame = _read_csv(path, wanted, delimiter)
    except pl.exceptions.PolarsError as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path} cannot be read ({reason}); write the file anew") from error
    return _without_blank_rows(path, frame)


def _without_blank_rows(path: Path, frame: pl.DataFrame) -> Table:
    numbered = pl.Series("row", range(1, len(frame) + 1), pl.Int64)
    if path.suffix.lower() in CSV_SUFFIXES and frame.width > 1:
        blank = frame.select(pl.all_horizontal(pl.all().is_null())).to_series()
        if blank.any():
            frame, numbered = frame.filter(~blank), numbered.filter(~blank)
    if len(frame) == 0:
        raise InputError(f"{path} has a header but no rows; add rows or remove the file")
    return Table(str(path), frame, numbered)


def _read_csv(path: Path, wanted: Sequence[str], delimiter: str) -> pl.DataFrame:
    header = _header_line(path)
    separator = _choose_delimiter(header, wanted) if delimiter == AUTO else delimiter
    columns = _fields(header, separator)
    for column in columns:
        if columns.count(column) > 1:
            raise InputError(f"{path} has two columns '{column}'; rename one of them")
    if delimiter != AUTO:
        _check_delimiter(path, header, wanted, delimiter)
    try:
        frame = pl.read_csv(path, separator=separator, infer_schema=False)
    except pl.exceptions.ComputeError:
        _refuse_long_row(path, separator, len(columns))
        raise
    return frame.rename(dict(zip(frame.columns, columns, strict=True)))


def _header_line(path: Path) -> str:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            line = file.readline()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not in UTF-8; save it as UTF-8") from error
    if not line.strip():
        raise InputError(f"{path} is empty; it needs a header line and rows")
    return line


def _fields(line: str, delimiter: str) -> list[str]:
    return [field.strip() for field in next(csv.reader(io.StringIO(line), delimiter=delimiter))]


def _choose_delimiter(header: str, wanted: Sequence[str]) -> str:
    """Prefer the delimiter that gives most of the wanted columns, then most columns."""

    def merit(delimiter: str) -> tuple[int, int]:
        fields = _fields(header, delimiter)
        return len(set(fields) & set(wanted)), len(fields)

    return max(DELIMITERS, key=merit)


def _check_delimiter(path: Path, header: str, wanted: Sequence[str], given: str) -> None:
    better = _choose_delimiter(header, wanted)
    found, possible = (_fields(header, d) for d in (given, better))
    if not set(wanted) & set(found) and set(wanted) & set(possible):
        raise InputError(
            f"{path}: delimiter {given!r} gives {len(found)} column(s), {listed(found)}; set "
            f"delimiter = {better!r} in [data], which gives {len(possible)}"
        )


def _refuse_long_row(path: Path, delimiter: str, width: int) -> None:
    """Name the first row with more fields than the header, if that is what is wrong."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            for number, fields in enumerate(csv.reader(file, delimiter=delimiter)):
                if len(fields) > width:
                    raise InputError(
                        f"{path}: row {number} has {len(fields)} fields, the header has {width}; "
                        f"quote texts that contain {delimiter!r}"
                    )
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not in UTF-8; save it as UTF-8") from error
