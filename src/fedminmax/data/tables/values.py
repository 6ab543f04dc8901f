"""Labels, groups and categories, read by value, independent of how a file spells them.

A whole number, a float and a boolean of the same value are the same (1, 1.0, true), in text and in
typed files, and so are letters with accents, however Unicode composes them. Texts that differ only
in letter case or spaces may be one value or two. That is not guessed: they are refused, unless the
schema merges such spellings, or lists both.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import polars as pl

from fedminmax.core.errors import InputError
from fedminmax.data.tables.file_format import with_plain_numbers
from fedminmax.data.tables.read_file import Table
from fedminmax.data.tables.schema import Schema

# Up to here every whole number is exactly representable as a float.
MAX_WHOLE = 2.0**53
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


def texts_of(raw: pl.Series) -> pl.Series:
    """Return a column as texts; whole numbers are the same from integers and floats."""
    if not raw.dtype.is_float():
        return raw.cast(pl.String)
    numbers = raw.fill_nan(None)
    whole = (numbers == numbers.round()) & (numbers.abs() < MAX_WHOLE)
    as_whole = numbers.set(~whole, None).cast(pl.Int64).cast(pl.String)
    return as_whole.zip_with(whole.fill_null(value=False), numbers.cast(pl.String))


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
def _listed(known: tuple[str, ...]) -> pl.DataFrame:
    """Return the spellings of a list of values."""
    return spellings(pl.Series(known, dtype=pl.String))


def variants(found: pl.DataFrame, known: Sequence[str]) -> tuple[str, str] | None:
    """Return two spellings that may be one value, both of the column or one of the list.

    Listed spellings are different values on purpose.
    """
    shown: dict[str, str] = {}
    for folded, own in found.select("folded", "shown").rows():
        other = shown.setdefault(folded, own)
        if own != other and not {own, other} <= set(known):
            return other, own
    listed = _listed(tuple(known))
    by_folded = dict(listed.select("folded", "spelled").rows())
    unlisted = found.filter(~pl.col("value").is_in(listed["value"].to_list()))
    for folded, own in unlisted.select("folded", "shown").rows():
        if folded in by_folded:
            return by_folded[folded], own
    return None


def read_values(table: Table, column: str, schema: Schema, known: Sequence[str] = ()) -> pl.Series:
    """Return a column by value, spelled as in ``known``; null if it is missing."""
    texts = with_plain_numbers(texts_of(table.frame[column]), table.format)
    found = spellings(texts, schema.missing_of(column))
    same = "folded" if schema.merge_spellings else "value"
    mapped = _mapped(found, same, schema.maps.get(column, {}))
    if not schema.merge_spellings:
        two = variants(found.filter(~pl.col("spelled").is_in(list(mapped))), known)
        if two is not None:
            raise InputError(
                f"{table.title}: column '{column}' has '{two[1]}' where '{two[0]}' is a value too; "
                "they differ only in letter case or spaces: correct one of them, or set "
                "merge_spellings = true in [data] to read them as one"
            )
    listed = _listed(tuple(known))
    by_listed = dict(listed.select("value", "spelled").rows())
    by_folded = dict(listed.select("folded", "spelled").rows())
    final = {
        spelled: by_listed.get(value)
        or (by_folded.get(folded, folded) if schema.merge_spellings else value)
        for spelled, value, folded in found.select("spelled", "value", "folded").rows()
    } | mapped
    return texts.replace_strict(final, default=None, return_dtype=pl.String).alias(column)


def _mapped(found: pl.DataFrame, same: str, own_map: Mapping[str, str]) -> dict[str, str]:
    """Return what spellings are read as, if the configuration maps their value to another one."""
    if not own_map:
        return {}
    keys = dict(_listed(tuple(own_map)).select(same, "spelled").rows())
    pairs = found.filter(pl.col(same).is_in(list(keys))).select("spelled", same).rows()
    return {spelled: own_map[keys[key]] for spelled, key in pairs}
