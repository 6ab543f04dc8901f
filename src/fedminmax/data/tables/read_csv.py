"""Read a CSV file in pieces: a small one is a single piece, and memory limits no other.

A piece ends at a line end that is not within quotes, and each is parsed below the file's header.
"""

import codecs
import csv
import gzip
import io
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from fedminmax.config.file_format import AUTO, FileFormat
from fedminmax.core.errors import InputError
from fedminmax.core.text import counted, quoted
from fedminmax.data.tables.notation import to_utf8
from fedminmax.data.tables.odd_rows import Oddity, OddRows

PIECE_BYTES = 2**25
GZIP_MARK = b"\x1f\x8b"
# Excel may write the delimiter into a line of its own above the header.
DELIMITER_LINE = re.compile(rb'^"?sep=(.)"?\r?\n', re.IGNORECASE)
WIDE_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)
WIDE_ENCODINGS = r"(?i)utf.?(16|32)"
NUL = "\0"
DELIMITERS = (",", ";", "\t", "|")


@dataclass(frozen=True, eq=False)
class CsvPiece:
    """Rows of a file as texts, their numbers, damaged ones, and the delimiter that was used."""

    frame: pl.DataFrame
    row_numbers: pl.Series
    odd: tuple[OddRows, ...]
    delimiter: str
    whole: bool


def csv_pieces(path: Path, wanted: Sequence[str], file_format: FileFormat) -> Iterator[CsvPiece]:
    """Yield the pieces of a file; ``wanted`` columns decide between delimiters."""
    header, before = b"", 0
    for raw, is_last in contents(path, file_format.encoding):
        content = to_utf8(path, raw, file_format.encoding)
        if b"\r" in content and b"\n" not in content.rstrip():
            # The line ends of old Macs; the last one may be another.
            content = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        own_delimiter = None if header else DELIMITER_LINE.match(content)
        if own_delimiter is not None:
            content = content[own_delimiter.end() :]
            if file_format.delimiter == AUTO:
                file_format = replace(file_format, delimiter=own_delimiter[1].decode())
        frame, delimiter = _parsed(path, header + content, wanted, file_format.delimiter, before)
        rows = pl.Series("row", range(before + 1, before + len(frame) + 1), pl.Int64)
        whole, before = is_last and not header, before + len(frame)
        if frame.width > 1 and frame[:, -1].null_count():
            blank = _blank_rows(
                path, header + content, frame, delimiter, int(rows[0]) - 1, is_last=is_last
            )
            if blank.any():
                frame, rows = frame.filter(~blank), rows.filter(~blank)
        damaged = _nul_rows(path, frame, rows) if NUL.encode() in content else ()
        if whole or len(frame):
            yield CsvPiece(frame, rows, damaged, delimiter, whole)
        header = header or content[: content.find(b"\n") + 1]


def contents(path: Path, encoding: str) -> Iterator[tuple[bytes, bool]]:
    """Yield the bytes of a file in pieces that end at line ends, and whether each is the last."""
    try:
        with path.open("rb") as start:
            marked = start.read(4)
        rest = b""
        with gzip.open(path) if marked.startswith(GZIP_MARK) else path.open("rb") as file:
            block = file.read(PIECE_BYTES)
            # Line ends of other encodings are more than a byte.
            narrow = not (block.startswith(WIDE_MARKS) or re.search(WIDE_ENCODINGS, encoding))
            while following := file.read(PIECE_BYTES):
                rest += block
                end = _line_end(rest) if narrow else 0
                if end:
                    yield rest[:end], False
                    rest = rest[end:]
                block = following
        yield rest + block, True
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} is damaged: gzip cannot unpack it; write it again") from error


def _line_end(content: bytes) -> int:
    r"""Return where the last line ends that does not end within quotes; 0 if none does.

    >>> _line_end(b'1,"a\nb"\n2,"c\nd')
    8
    """
    end, quotes = len(content), content.count(b'"')
    while end := content.rfind(b"\n", 0, end) + 1:
        quotes -= content.count(b'"', end)
        content = content[:end]
        if quotes % 2 == 0:
            return end
        end -= 1
    return 0


def _blank_rows(
    path: Path,
    content: bytes,
    frame: pl.DataFrame,
    delimiter: str,
    before: int,
    *,
    is_last: bool,
) -> pl.Series:
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
    at_end = empty & (pl.Series(range(len(empty)), dtype=pl.Int64) >= last) & is_last
    short = (widths > 0) & (widths < frame.width) & ~at_end
    if short.any():
        number = short.arg_max() or 0
        raise InputError(
            f"{path}: row {before + number + 1} has {counted(int(widths[number]), 'field')}, "
            f"the header has {frame.width} ({counted(int(short.sum()), 'such row')}); the file may "
            "be cut off: write it again"
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
    path: Path, content: bytes, wanted: Sequence[str], delimiter: str, before: int
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
        _refuse_long_row(path, content, separator, len(columns), before)
        _refuse_open_quote(path, content, before)
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


def _refuse_open_quote(path: Path, content: bytes, before: int) -> None:
    """Report the first line with an odd number of quotes, if there is one."""
    for number, line in enumerate(content.splitlines()):
        if line.count(b'"') % 2:
            raise InputError(
                f'{path}: line {before + number + 1} has a quote (") that does not belong to a '
                "pair; double quotes within texts, and put such texts in quotes"
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


def _refuse_long_row(path: Path, content: bytes, delimiter: str, width: int, before: int) -> None:
    """Report the first row with more fields than the header, if there is one."""
    with _text(content) as file:
        for number, fields in enumerate(csv.reader(file, delimiter=delimiter)):
            if len(fields) > width:
                raise InputError(
                    f"{path}: row {before + number} has {len(fields)} fields, the header has "
                    f"{width}; quote texts that contain {delimiter!r}, and remove lines above the "
                    "header"
                )
