"""Columns read by value: whatever format or spelling a file has, equal values are equal."""

from collections.abc import Mapping, Sequence

import polars as pl

from fedminmax.config.schema import Schema
from fedminmax.config.spellings import spellings, spellings_of, variants
from fedminmax.core.errors import InputError
from fedminmax.data.tables.notation import with_plain_numbers
from fedminmax.data.tables.read_file import Table

# Up to here every whole number is exactly representable as a float.
MAX_WHOLE = 2.0**53


def texts_of(raw: pl.Series) -> pl.Series:
    """Return a column as texts; whole numbers are the same from integers and floats."""
    if not raw.dtype.is_float():
        return raw.cast(pl.String)
    numbers = raw.fill_nan(None)
    whole = (numbers == numbers.round()) & (numbers.abs() < MAX_WHOLE)
    as_whole = numbers.set(~whole, None).cast(pl.Int64).cast(pl.String)
    return as_whole.zip_with(whole.fill_null(value=False), numbers.cast(pl.String))


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
    listed = spellings_of(tuple(known))
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
    keys = dict(spellings_of(tuple(own_map)).select(same, "spelled").rows())
    pairs = found.filter(pl.col(same).is_in(list(keys))).select("spelled", same).rows()
    return {spelled: own_map[keys[key]] for spelled, key in pairs}
