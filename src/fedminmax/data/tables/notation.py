"""How characters, numbers and dates are written in a file: read by its format, and guesses of it.

Rows are read by the format alone. A guess is a hint in a refusal, or what `fedminmax init`
proposes.
"""

import codecs
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from fedminmax.config.file_format import AUTO, DECIMALS, THOUSANDS, FileFormat, days_as
from fedminmax.core.errors import InputError

MARKED_NUMBER = "^[+-]?[0-9]+[,. '\u00a0\u2009\u202f\u2019]"
BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
WESTERN = "cp1252"
# Days and months as two digits, or names of months; if several fit, none is guessed.
DATE_FORMATS = {
    "%d.%m.%Y": r"^\d{1,2}\.\d{1,2}\.\d{4}$",
    "%d/%m/%Y": r"^\d{1,2}/\d{1,2}/\d{4}$",
    "%m/%d/%Y": r"^\d{1,2}/\d{1,2}/\d{4}$",
    "%d-%m-%Y": r"^\d{1,2}-\d{1,2}-\d{4}$",
    "%m-%d-%Y": r"^\d{1,2}-\d{1,2}-\d{4}$",
    "%d.%m.%y": r"^\d{1,2}\.\d{1,2}\.\d{2}$",
    "%d/%m/%y": r"^\d{1,2}/\d{1,2}/\d{2}$",
    "%m/%d/%y": r"^\d{1,2}/\d{1,2}/\d{2}$",
    "%Y/%m/%d": r"^\d{4}/\d{1,2}/\d{1,2}$",
    "%Y.%m.%d": r"^\d{4}\.\d{1,2}\.\d{1,2}$",
    "%d %b %Y": r"^\d{1,2} [A-Za-z]{3} \d{4}$",
    "%d-%b-%Y": r"^\d{1,2}-[A-Za-z]{3}-\d{4}$",
    "%d %B %Y": r"^\d{1,2} [A-Za-z]{4,} \d{4}$",
    "%b %d, %Y": r"^[A-Za-z]{3} \d{1,2}, \d{4}$",
    "%B %d, %Y": r"^[A-Za-z]{4,} \d{1,2}, \d{4}$",
    "%d.%m.%Y %H:%M": r"^\d{1,2}\.\d{1,2}\.\d{4} \d{1,2}:\d{2}$",
    "%d/%m/%Y %H:%M": r"^\d{1,2}/\d{1,2}/\d{4} \d{1,2}:\d{2}$",
    "%m/%d/%Y %H:%M": r"^\d{1,2}/\d{1,2}/\d{4} \d{1,2}:\d{2}$",
    "%d.%m.%Y %H:%M:%S": r"^\d{1,2}\.\d{1,2}\.\d{4} \d{1,2}:\d{2}:\d{2}$",
    "%d/%m/%Y %H:%M:%S": r"^\d{1,2}/\d{1,2}/\d{4} \d{1,2}:\d{2}:\d{2}$",
    "%m/%d/%Y %H:%M:%S": r"^\d{1,2}/\d{1,2}/\d{4} \d{1,2}:\d{2}:\d{2}$",
}
# Texts beside a number: %, a currency, kg, mg/l.
UNITS = r"(%|[$\u20ac\u00a3\u00a5]|[A-Za-z]{1,5}(?:/[A-Za-z]{1,4})?)"
# A year of two digits: 45 may be 1945 or 2045.
SHORT_YEAR = "%y"


def to_utf8(path: Path, content: bytes, encoding: str) -> bytes:
    """Return a file's text in UTF-8, without a byte-order mark."""
    used = encoding
    if encoding == AUTO:
        used = next(
            (name for mark, name in BYTE_ORDER_MARKS.items() if content.startswith(mark)), "utf-8"
        )
    try:
        text = content.decode(used)
    except UnicodeDecodeError as error:
        if encoding != AUTO:
            raise InputError(
                f"{path} is not in {encoding}; set another encoding in [data], or save it as UTF-8"
            ) from error
        guess = guess_encoding(content)
        raise InputError(
            f'{path} is not in UTF-8; set encoding = "{guess}" (or what it is in) in [data], or '
            "give --encoding, or save it as UTF-8"
        ) from error
    if "\0" in text and guess_encoding(content) != AUTO and encoding == AUTO:
        raise InputError(
            f'{path} looks like UTF-16 without its mark; set encoding = "{guess_encoding(content)}"'
            " in [data], or give --encoding, or save it as UTF-8"
        )
    if used == "utf-8":
        return content.removeprefix(codecs.BOM_UTF8)
    return text.removeprefix("\ufeff").encode()


def guess_encoding(content: bytes) -> str:
    """Guess the encoding of a file without a byte-order mark; "auto" for UTF-8."""
    start = content[:4096]
    for name, zeros in (("utf-16-le", start[1::2]), ("utf-16-be", start[::2])):
        if len(start) > 1 and zeros.count(0) > 0.4 * len(start) / 2:
            return name
    for encoding, name in (("utf-8", AUTO), (WESTERN, WESTERN)):
        try:
            content.decode(encoding)
        except UnicodeDecodeError:
            continue
        return name
    return "latin-1"


def plain_numbers(text: pl.Series, file_format: FileFormat) -> pl.Series:
    """Return numbers in plain notation; null where a text is not a number of this format.

    >>> written = pl.Series(["1.234,5", "12,5", "1234", "1.5"])
    >>> plain_numbers(written, FileFormat(decimal=",", thousands=".")).to_list()
    ['1234.5', '12.5', '1234', None]
    """
    if file_format.has_plain_numbers:
        return text
    mark, between = re.escape(file_format.decimal), THOUSANDS[file_format.thousands]
    ungrouped = rf"^[+-]?(?:\d+(?:{mark}\d*)?|{mark}\d+)(?:[eE][+-]?\d+)?$"
    fits = text.str.contains(ungrouped)
    plain = text
    if between:
        fits |= text.str.contains(rf"^[+-]?[1-9]\d{{0,2}}(?:{between}\d{{3}})+(?:{mark}\d*)?$")
        plain = text.str.replace_all(between, "")
    return plain.str.replace(file_format.decimal, ".", literal=True).set(~fits, None)


def with_plain_numbers(text: pl.Series, file_format: FileFormat) -> pl.Series:
    """Return texts, with numbers of this format in plain notation."""
    if file_format.has_plain_numbers:
        return text
    numbers = plain_numbers(text.str.strip_chars(), file_format)
    return numbers.zip_with(numbers.is_not_null(), text)


def guess_number_format(columns: Sequence[pl.Series], file_format: FileFormat) -> FileFormat:
    """Return the format in which most columns of a file are numbers; the plainest of several.

    A comma before three digits is ambiguous. If commas also separate the fields, it separates
    thousands; otherwise it is the decimal mark.
    """
    by_comma = [(",", ""), (",", "."), (".", ",")]
    if file_format.delimiter == ",":
        by_comma = [(".", ","), (",", ""), (",", ".")]
    pairs = [(".", ""), *by_comma, *((d, t) for t in " '" for d in DECIMALS)]
    candidates = [replace(file_format, decimal=d, thousands=t) for d, t in pairs]
    texts = [column.drop_nulls().unique(maintain_order=True).head(5000) for column in columns]
    texts = [text for text in texts if len(text)]
    others = [text for text in texts if not _numeric_columns([text], file_format)]
    if not any(bool(text.str.contains(MARKED_NUMBER).any()) for text in others):
        return file_format
    # The first of equally good ones is the plainest.
    return max([file_format, *candidates], key=lambda one: _numeric_columns(texts, one))


def number_hint(texts: pl.Series, file_format: FileFormat) -> str:
    """Return a hint if texts are numbers of another format, else an empty string."""
    guess = guess_number_format([texts], file_format)
    if guess == file_format:
        return ""
    decimal, options = f'decimal = "{guess.decimal}"', "--decimal"
    if guess.thousands or file_format.thousands:
        decimal += f' and thousands = "{guess.thousands}"'
        options += " and --thousands"
    return f"set {decimal} in [data], or give {options}, if the file has this format; else "


def unit_of(values: pl.Series) -> str:
    """Return the unit that all texts of numbers have, before or after them; "" if there is none.

    >>> unit_of(pl.Series(["40%", "12.5 %"])), unit_of(pl.Series(["$3", "$12"]))
    ('%', '$')
    >>> unit_of(pl.Series(["3 kg", "4 lb"])), unit_of(pl.Series(["a1", "b2"]))
    ('', '')
    """
    number = r"[+-]?\d[\d.,' ]*"
    for pattern in (rf"^{number}\s*{UNITS}$", r"^[+-]?([$\u20ac\u00a3\u00a5])\s*\d[\d.,' ]*$"):
        units = values.str.extract(pattern)
        if units.null_count() == 0 and units.n_unique() == 1:
            return str(units[0])
    return ""


def without_unit(text: pl.Series, unit: str) -> pl.Series:
    """Return texts without this unit before or after the number."""
    if not unit:
        return text
    written = re.escape(unit)
    bare = text.str.replace(rf"\s*{written}$", "")
    return bare.str.replace(rf"^([+-]?){written}\s*", "${1}")


def fitting_date_formats(values: pl.Series) -> list[str]:
    """Return the formats in which all these texts are dates."""
    first = values[0] if len(values) else ""
    return [
        name
        for name, pattern in DATE_FORMATS.items()
        # The first text alone excludes most formats.
        if re.match(pattern, first)
        and bool(values.str.contains(pattern).all())
        and not days_as(values, name).null_count()
    ]


def mostly_fitting_date_formats(values: pl.Series, odd: float) -> list[str]:
    """Return the formats in which all but this share of the texts are dates."""
    most = odd * len(values)
    return [
        name
        for name, pattern in DATE_FORMATS.items()
        if int((~values.str.contains(pattern)).sum()) <= most
        and days_as(values, name).null_count() <= most
    ]


def guess_date_format(columns: Sequence[pl.Series], file_format: FileFormat) -> FileFormat:
    """Set the format of all date columns of a file, if it is unique and names the century."""
    unique_formats = [
        formats[0]
        for column in columns
        if len(values := column.drop_nulls().unique(maintain_order=True).head(5000))
        and len(formats := fitting_date_formats(values)) == 1
        and SHORT_YEAR not in formats[0]
    ]
    same = len(set(unique_formats)) == 1
    return replace(file_format, date_format=unique_formats[0]) if same else file_format


def with_iso_dates(text: pl.Series, file_format: FileFormat) -> pl.Series:
    """Return a column whose texts are all dates of this format as dates such as 2024-12-31."""
    if file_format.date_format is None:
        return text
    days = days_as(text, file_format.date_format)
    return days.cast(pl.String) if days.null_count() == text.null_count() else text


def _numeric_columns(texts: Sequence[pl.Series], file_format: FileFormat) -> int:
    """Count columns of numbers; one text in ten may be an error."""
    numbers = [plain_numbers(text, file_format).cast(pl.Float64, strict=False) for text in texts]
    return sum(column.null_count() <= 0.1 * len(column) for column in numbers)
