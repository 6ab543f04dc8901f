"""The format of a file: delimiter, encoding, decimal mark, thousands separator, dates.

Files of different sites may have different formats and still mean the same. Nothing is guessed
when rows are read; a value that only fits another format is refused with a hint what to set.
`fedminmax init` proposes what it detects.
"""

import codecs
from dataclasses import KW_ONLY, dataclass, fields, replace
from datetime import date
from typing import Any

import polars as pl

from fedminmax.core.errors import InputError

AUTO = "auto"
DECIMALS = (".", ",")
# A space stands for all kinds of narrow and unbreakable spaces.
THOUSANDS = {"": "", ",": ",", ".": r"\.", " ": r"[ \u00a0\u2009\u202f]", "'": "['\u2019]"}
SAMPLE_DAY = date(2004, 12, 31)


@dataclass(frozen=True)
class FileFormat:
    """The format of a file.

    ``date_format`` is for date columns without their own format, or for all of them if it belongs
    to this file (``own_dates``). Dates such as 2024-12-31 are always read.
    """

    delimiter: str = AUTO
    encoding: str = AUTO
    _: KW_ONLY
    decimal: str = "."
    thousands: str = ""
    date_format: str | None = None
    own_dates: bool = False

    @property
    def has_plain_numbers(self) -> bool:
        """Whether numbers are in plain notation: 1234.5."""
        return self.decimal == "." and not self.thousands


PLAIN = FileFormat()


@dataclass(frozen=True)
class FormatChanges:
    """Differences in one file, or in all files of a command; None means no difference."""

    delimiter: str | None = None
    encoding: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    date_format: str | None = None

    @property
    def settings(self) -> dict[str, str]:
        """The differences by their keys."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def apply(self, agreed: FileFormat) -> FileFormat:
        """Return the format with these changes."""
        own_dates = agreed.own_dates or self.date_format is not None
        changed: dict[str, Any] = {**self.settings, "own_dates": own_dates}
        return replace(agreed, **changed)

    def over(self, other: "FormatChanges") -> "FormatChanges":
        """Return these changes, and the other ones where these are None."""
        return replace(other, **self.settings)


NO_CHANGES = FormatChanges()


def changes_between(agreed: FileFormat, other: FileFormat) -> FormatChanges:
    """Return the changes from one format to the other."""
    pairs = {field.name: getattr(other, field.name) for field in fields(FormatChanges)}
    changed = {name: value for name, value in pairs.items() if value != getattr(agreed, name)}
    return FormatChanges(**changed)


def check_format(file_format: FileFormat, where: str) -> FileFormat:
    """Refuse an invalid format; the message begins with ``where`` it was set."""
    delimiter, encoding = file_format.delimiter, file_format.encoding
    decimal, thousands = file_format.decimal, file_format.thousands
    if delimiter != AUTO and len(delimiter) != 1:
        raise InputError(f"{where} delimiter is '{delimiter}'; give one character or \"auto\"")
    if decimal not in DECIMALS:
        raise InputError(f'{where} decimal is {decimal!r}; give "." or ","')
    if thousands not in THOUSANDS or thousands == decimal:
        marks = ", ".join(f'"{mark}"' for mark in THOUSANDS if mark != decimal)
        raise InputError(
            f"{where} thousands is {thousands!r} with decimal {decimal!r}; give {marks}"
        )
    if encoding != AUTO:
        try:
            codecs.lookup(encoding)
        except LookupError as error:
            raise InputError(
                f"{where} encoding is '{encoding}', which is unknown; give utf-8, cp1252, "
                "latin-1, utf-16 or another that Python knows"
            ) from error
    if file_format.date_format is not None and not _determines_a_day(file_format.date_format):
        raise InputError(
            f"{where} date_format is '{file_format.date_format}', which does not determine a day; "
            'give one such as "%d.%m.%Y"'
        )
    return file_format


def days_as(text: pl.Series, date_format: str) -> pl.Series:
    """Return dates (or times, if the format has them); null where a text has another format."""
    has_time = "%H" in date_format or "%T" in date_format
    kind = pl.Datetime("us") if has_time else pl.Date
    return text.str.strptime(kind, date_format, strict=False)


def _determines_a_day(date_format: str) -> bool:
    written = pl.Series([SAMPLE_DAY.strftime(date_format)])
    try:
        return days_as(written, date_format).cast(pl.Date).to_list() == [SAMPLE_DAY]
    except pl.exceptions.PolarsError:
        return False
