"""Parse one column of a table into numbers or category codes; an error names the first bad row.

Plain polars expressions rather than a schema library for frames: pandera's polars backend does not
report in which column a text failed to parse, and does not support missing-value texts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedminmax.config.file_format import (
    PLAIN,
    FileFormat,
    by_value,
    days_as,
    spellings,
    spellings_of,
    variants,
)
from fedminmax.config.messages import toml_key
from fedminmax.config.schema import Feature, Kind, Schema
from fedminmax.core.errors import InputError
from fedminmax.data.tables.notation import (
    fitting_date_formats,
    number_hint,
    plain_numbers,
    with_plain_numbers,
    without_unit,
)
from fedminmax.data.tables.read_file import MICROSECONDS_PER_DAY, FileTable

# Up to here every whole number is exactly representable as a float.
MAX_WHOLE = 2.0**53
BOOLEAN_PAIRS = (("true", "false"), ("t", "f"), ("yes", "no"), ("y", "n"), ("1", "0"))
BOOLEAN_TEXTS = {
    **dict.fromkeys((yes for yes, _ in BOOLEAN_PAIRS), 1.0),
    **dict.fromkeys((no for _, no in BOOLEAN_PAIRS), 0.0),
}
ISO_TIMES = (
    "%Y-%m-%dT%H:%M:%S%.f",
    "%Y-%m-%d %H:%M:%S%.f",
    "%Y-%m-%dT%H:%M",
    "%Y-%m-%d %H:%M",
)
TIME_ZONE = r"(:\d{2}(?:\.\d+)?)(?:Z|[+-]\d{2}:?\d{2})$"
AHEAD = r":\d{2}(?:\.\d+)?([+-])(\d{2}):?(\d{2})$"
FULL_YEAR = r"^\s*\d{4}-"
EXPECTED = {
    Kind.NUMERIC: "a number",
    Kind.BOOLEAN: "true or false, yes or no, 1 or 0",
    Kind.DATE: "a date such as 2024-12-31",
}


@dataclass(frozen=True)
class Column:
    """A column to read as numbers, and how the user can fix a value that is not a number."""

    name: str
    kind: Kind
    fix: str
    date_format: str | None = None
    unit: str = ""


def column_of(feature: Feature, unit: str = "") -> Column:
    """Describe a feature's column, whose numbers may have a unit beside them."""
    section = f"[features.{toml_key(feature.column)}]"
    other = f'write kind = "category" in {section}'
    if feature.kind is Kind.DATE:
        other = f"give its format in {section}"
    fix = f"correct it, add it to missing_values in [data], or {other}"
    return Column(feature.column, feature.kind, fix, feature.date_format, unit)


def text_of(raw: pl.Series, missing_values: Sequence[str]) -> pl.Series:
    """Return the column as trimmed text, with null for missing values.

    Whole numbers read the same whether their file stores them as text, integers or floats.
    """
    text = texts_of(raw)
    if not raw.dtype.is_numeric():
        text = text.str.strip_chars()
    return text.set(text.is_in(list(missing_values)), None)


def parse_numbers(
    table: FileTable, column: Column, missing_values: Sequence[str]
) -> NDArray[np.float64]:
    """Return one number per row, NaN if it is missing."""
    raw = table.frame[column.name]
    if column.kind is Kind.NUMERIC and (raw.dtype.is_numeric() or raw.dtype == pl.Boolean):
        values = raw.cast(pl.Float64)
    elif column.kind is Kind.DATE and isinstance(raw.dtype, pl.Date | pl.Datetime):
        values = _days(raw)
    else:
        text = without_unit(text_of(raw, missing_values), column.unit)
        values = numbers_in(text, column.kind, table.format, column.date_format)
        if values.null_count() > text.null_count():
            position, row = table.first_row(values.is_null() & text.is_not_null())
            raise InputError(
                f"{table.title}: column '{column.name}', row {row}: '{text[position]}' is not "
                f"{_expected(column, table.format)}; {_hint(column, text, values, table.format)}"
                f"{column.fix}"
            )
    if bool(values.is_infinite().any()):
        _, row = table.first_row(values.is_infinite().fill_null(value=False))
        raise InputError(
            f"{table.title}: column '{column.name}', row {row} is infinite; {column.fix}"
        )
    numbers = values.to_numpy()
    codes = missing_codes(tuple(missing_values)) if column.kind is Kind.NUMERIC else []
    return np.where(np.isin(numbers, codes), np.nan, numbers) if codes else numbers


def numbers_in(
    text: pl.Series,
    kind: Kind,
    file_format: FileFormat = PLAIN,
    date_format: str | None = None,
) -> pl.Series:
    """Return the numbers in these texts, null where a text is not a number."""
    readers: dict[Kind, Callable[[], pl.Series]] = {
        Kind.NUMERIC: lambda: plain_numbers(text, file_format).cast(pl.Float64, strict=False),
        Kind.BOOLEAN: lambda: (
            by_value(with_plain_numbers(text, file_format))
            .str.to_lowercase()
            .replace_strict(BOOLEAN_TEXTS, default=None, return_dtype=pl.Float64)
        ),
        Kind.DATE: lambda: _days_in(text, file_format, date_format),
    }
    return readers[kind]()


def _expected(column: Column, file_format: FileFormat) -> str:
    if column.kind is Kind.DATE:
        of_file = file_format.date_format if file_format.own_dates else None
        date_format = of_file or column.date_format or file_format.date_format
        return f"a date in the format {date_format}" if date_format else EXPECTED[Kind.DATE]
    if column.kind is Kind.NUMERIC and not file_format.has_plain_numbers:
        thousands = f" and thousands '{file_format.thousands}'" if file_format.thousands else ""
        return f"a number with decimal '{file_format.decimal}'{thousands}"
    return EXPECTED[column.kind]


def _hint(column: Column, text: pl.Series, values: pl.Series, file_format: FileFormat) -> str:
    """Return a hint what to set if the column's values fit another format."""
    if column.kind is Kind.NUMERIC:
        return number_hint(text.filter(values.is_null() & text.is_not_null()), file_format)
    formats = fitting_date_formats(text.drop_nulls().unique()) if column.kind is Kind.DATE else []
    options = " or ".join(f'"{name}"' for name in formats)
    if not options:
        return ""
    return f"set date_format = {options} in [data], or give --date-format, if that is right; else "


def _days_in(text: pl.Series, file_format: FileFormat, date_format: str | None) -> pl.Series:
    """Read a column's dates, all in one format."""
    if file_format.own_dates:
        date_format = None
    if date_format is not None:
        return _days(days_as(text, date_format))
    if file_format.date_format is not None:
        days = _days(days_as(text, file_format.date_format))
        if days.null_count() == text.null_count():
            return days
        iso = _days_in(text, PLAIN, None)
        return iso if iso.null_count() == text.null_count() else days
    # A year has four digits: 45-01-02 is not a day of the year 45.
    plain = text.str.replace(TIME_ZONE, "${1}").set(~text.str.contains(FULL_YEAR), None)
    days = _days(plain.str.strptime(pl.Date, "%Y-%m-%d", strict=False))
    for time_format in ISO_TIMES:
        if days.null_count() == text.null_count():
            break
        times = plain.str.strptime(pl.Datetime("us"), time_format, strict=False)
        days = days.zip_with(days.is_not_null(), _days(times))
    return days - _ahead_of_utc(text)


def _ahead_of_utc(text: pl.Series) -> pl.Series:
    """Return how many days a time such as 10:00+01:00 is ahead of UTC."""
    parts = [text.str.extract(AHEAD, place).cast(pl.Float64) for place in (2, 3)]
    signs = text.str.extract(AHEAD, 1).replace_strict({"+": 1.0, "-": -1.0}, default=None)
    return (signs.cast(pl.Float64) * (parts[0] + parts[1] / 60) / 24).fill_null(0.0)


def _days(dates: pl.Series) -> pl.Series:
    """Days since 1970, with the time of day as a fraction."""
    return dates.cast(pl.Datetime("us")).dt.epoch("us") / MICROSECONDS_PER_DAY


@lru_cache(maxsize=1_000)  # the same for most columns of every site
def missing_codes(texts: tuple[str, ...]) -> list[float]:
    """Return codes such as -999, which mean a missing value in typed columns as well."""
    parsed = pl.Series(list(texts), dtype=pl.String).cast(pl.Float64, strict=False)
    return parsed.filter(parsed.is_finite().fill_null(value=False)).to_list()


def texts_of(raw: pl.Series) -> pl.Series:
    """Return a column as texts; whole numbers are the same from integers and floats."""
    if not raw.dtype.is_float():
        return raw.cast(pl.String)
    numbers = raw.fill_nan(None)
    whole = (numbers == numbers.round()) & (numbers.abs() < MAX_WHOLE)
    as_whole = numbers.set(~whole, None).cast(pl.Int64).cast(pl.String)
    return as_whole.zip_with(whole.fill_null(value=False), numbers.cast(pl.String))


def read_values(
    table: FileTable, column: str, schema: Schema, listed_values: Sequence[str] = ()
) -> pl.Series:
    """Return a column by value, spelled as in ``known``; null if it is missing."""
    texts = with_plain_numbers(texts_of(table.frame[column]), table.format)
    written = spellings(texts, schema.missing_of(column))
    same = "folded" if schema.merge_spellings else "value"
    mapped = _mapped(written, same, schema.maps.get(column, {}))
    if not schema.merge_spellings:
        two = variants(written.filter(~pl.col("spelled").is_in(list(mapped))), listed_values)
        if two is not None:
            raise InputError(
                f"{table.title}: column '{column}' has '{two[1]}' where '{two[0]}' is a value too; "
                "they differ only in letter case or spaces: correct one of them, or set "
                "merge_spellings = true in [data] to read them as one"
            )
    listed = spellings_of(tuple(listed_values))
    by_listed = dict(listed.select("value", "spelled").rows())
    by_folded = dict(listed.select("folded", "spelled").rows())
    final = {
        spelled: by_listed.get(value)
        or (by_folded.get(folded, folded) if schema.merge_spellings else value)
        for spelled, value, folded in written.select("spelled", "value", "folded").rows()
    } | mapped
    return texts.replace_strict(final, default=None, return_dtype=pl.String).alias(column)


def _mapped(written: pl.DataFrame, same: str, readings: Mapping[str, str]) -> dict[str, str]:
    """Return what spellings are read as, if the configuration maps their value to another one."""
    if not readings:
        return {}
    keys = dict(spellings_of(tuple(readings)).select(same, "spelled").rows())
    pairs = written.filter(pl.col(same).is_in(list(keys))).select("spelled", same).rows()
    return {spelled: readings[keys[key]] for spelled, key in pairs}
