"""How a file writes its values: delimiter, encoding, numbers and dates, and spellings of labels.

Files of different sites may have different formats and still mean the same. Nothing is guessed
when rows are read; a value that only fits another format is refused with a hint what to set.
`fedminmax init` proposes what it detects.

Labels, groups and categories are read by value. A whole number, a float and a boolean of the same
value are the same (1, 1.0, true), in text and in typed files, and so are letters with accents,
however Unicode composes them. Texts that differ only in letter case or spaces may be one value or
two. That is not guessed: they are refused, unless the schema merges such spellings, or lists both.
"""

import codecs
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from datetime import date
from functools import lru_cache
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


# A leading zero or an exponent means a code (007, 1E50), which is text.
WHOLE = r"^[+-]?(?:0|[1-9][0-9]*)(?:\.0*)?$"
BROKEN = r"^[+-]?(?:0|[1-9][0-9]*)?\.[0-9]*[1-9]0*$"
NUMBER = r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?$"
BOOLEANS = {"true": "1", "false": "0"}


def _value_of(plain: pl.Expr) -> pl.Expr:
    """Return what is equal for equal numbers and booleans, of trimmed texts."""
    whole = plain.str.extract(r"^\+?(-?[0-9]+)").str.replace(r"^-0$", "0")
    broken = plain.str.strip_prefix("+").str.strip_chars_end("0").str.replace(r"^(-?)\.", "${1}0.")
    return (
        pl.when(plain.str.contains(WHOLE))
        .then(whole)
        .when(plain.str.contains(BROKEN))
        .then(broken)
        .otherwise(plain.str.to_lowercase().replace_strict(BOOLEANS, default=plain))
    )


# Built once: most columns have few values, and building these takes longer than evaluating them.
VALUE = _value_of(pl.col("plain")).alias("value")
FOLDED = pl.col("value").str.normalize("NFKC").str.to_lowercase().str.replace_all(r"\s+", " ")
SHOWN = (
    pl.when(pl.col("value").str.contains(NUMBER))
    .then(pl.col("value"))
    .otherwise(pl.col("spelled").str.normalize("NFC"))
)


def by_value(text: pl.Series) -> pl.Series:
    """Return trimmed texts in which equal numbers and booleans are equal.

    >>> by_value(pl.Series(["1", "+1.0", "-0.0", " 2.50", "TRUE", "007", "Ill"])).to_list()
    ['1', '1', '0', '2.5', '1', '007', 'Ill']
    """
    plain = text.str.strip_chars().str.normalize("NFC")
    return plain.to_frame("plain").select(VALUE).to_series().alias(text.name)


def spellings(texts: pl.Series, missing_values: Sequence[str] = ()) -> pl.DataFrame:
    """Return the distinct spellings of a column's values, without missing ones.

    ``value`` is equal for equal values, ``folded`` also for values that differ only in letter case
    or spaces. ``shown`` differs if a user may see two values.
    """
    spelled = texts.drop_nulls().unique(maintain_order=True).alias("spelled")
    frame = pl.DataFrame([spelled, by_value(spelled).alias("value")])
    if missing_values:
        missing = _missing_texts(tuple(missing_values))
        frame = frame.filter(
            ~pl.col("value").is_in(missing) & ~pl.col("spelled").str.strip_chars().is_in(missing)
        )
    return frame.with_columns(folded=FOLDED, shown=SHOWN)


@lru_cache(maxsize=100)  # the same for every column of every site
def _missing_texts(missing_values: tuple[str, ...]) -> tuple[str, ...]:
    by_their_value = by_value(pl.Series(missing_values, dtype=pl.String))
    return *missing_values, *by_their_value.to_list()


@lru_cache(maxsize=1_000)  # the same at every site
def spellings_of(listed_values: tuple[str, ...]) -> pl.DataFrame:
    """Return the spellings of a list of values."""
    return spellings(pl.Series(listed_values, dtype=pl.String))


def variants(written: pl.DataFrame, listed_values: Sequence[str]) -> tuple[str, str] | None:
    """Return two spellings that may be one value, both of the column or one of the list.

    Listed spellings are different values on purpose.
    """
    shown: dict[str, str] = {}
    for folded, spelling in written.select("folded", "shown").rows():
        other = shown.setdefault(folded, spelling)
        if spelling != other and not {spelling, other} <= set(listed_values):
            return other, spelling
    listed = spellings_of(tuple(listed_values))
    by_folded = dict(listed.select("folded", "spelled").rows())
    unlisted = written.filter(~pl.col("value").is_in(listed["value"].to_list()))
    for folded, spelling in unlisted.select("folded", "shown").rows():
        if folded in by_folded:
            return by_folded[folded], spelling
    return None
