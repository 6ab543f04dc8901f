"""Categories whose values come from the sites: agreed from counts, without naming rare ones.

A table of counts has a bucket for every hash of a text; there are several tables with independent
hashes, as in a count-min sketch (Cormode and Muthukrishnan 2005). Counts of training rows are sums:
their total over sites is that of the pooled rows, masked or not. A text may be named if its buckets
all have enough rows in the total. The sites name theirs, and the sorted union is the list. So the
list does not depend on which site has which rows. A rare text is named only if each of its
buckets is shared with other rows: with c common values, with the chance (1 - exp(-c / BUCKETS))^4.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedminmax.config.file_format import spellings, variants
from fedminmax.config.messages import toml_key
from fedminmax.config.schema import Schema
from fedminmax.core.errors import InputError
from fedminmax.data.tables.parse_rows import FeatureRows, ParsedRows

TABLES, BUCKETS = 4, 2**14
# The same as for the lists that `fedminmax init` writes.
MINIMUM_ROWS = 10
MAX_VALUES = 10_000
# A longer text is no code; it counts as a rare one.
MAX_LENGTH = 200
# With more buckets in use than by so many common values, rare ones would be named by chance.
MAX_OPEN_SHARE = 0.5
Counts = NDArray[np.int64]


def bucket_counts(rows: FeatureRows, column: str) -> Counts:
    """Count the rows by bucket [TABLES, BUCKETS] in a column that has yet to get its list.

    Missing values and texts that are too long to be codes are not counted.
    """
    by_value = np.bincount(rows.codes[column], minlength=len(rows.values[column]) + 1)
    counts = np.zeros((TABLES, BUCKETS), np.int64)
    for value, count in zip(rows.values[column], by_value.tolist(), strict=False):
        if count and len(value) <= MAX_LENGTH:
            counts[range(TABLES), _buckets(value)] += count
    return counts


def _buckets(value: str) -> list[int]:
    """Return the bucket of a text in each table."""
    hashed = hashlib.sha256(value.encode()).digest()
    return [int.from_bytes(hashed[8 * n : 8 * n + 8]) % BUCKETS for n in range(TABLES)]


def check_totals(totals: Counts, column: str) -> None:
    """Refuse a column with so many values that rare ones could not be told from common ones."""
    if np.mean(totals >= MINIMUM_ROWS) > MAX_OPEN_SHARE:
        raise InputError(_too_many(column))


def may_be_named(value: str, totals: Counts) -> bool:
    """Return whether a text has so many rows over all sites that it can be named."""
    common = totals[range(TABLES), _buckets(value)] >= MINIMUM_ROWS
    return len(value) <= MAX_LENGTH and bool(common.all())


def common_values(rows: FeatureRows, column: str, totals: Counts) -> tuple[str, ...]:
    """Return the values of these rows that may be named, in alphabetical order."""
    check_totals(totals, column)
    occurring = np.unique(rows.codes[column]).tolist()
    values = rows.values[column]
    named = [values[code] for code in occurring if code < len(values)]
    return tuple(value for value in named if may_be_named(value, totals))


def with_values(schema: Schema, named: Mapping[str, Iterable[Sequence[str]]]) -> Schema:
    """Return the schema with the union of what sites named; columns without a value are dropped."""
    lists = {
        column: tuple(sorted({value for values in by_site for value in values}))
        for column, by_site in named.items()
    }
    for column, values in lists.items():
        _check_list(column, values, schema)
    completed = with_lists(schema, lists)
    if not completed.features:
        raise InputError(
            f"no feature is left: no value of {' or '.join(map(repr, lists))} has "
            f"{MINIMUM_ROWS} training rows over all sites; give other features"
        )
    return completed


def with_lists(schema: Schema, lists: Mapping[str, tuple[str, ...]]) -> Schema:
    """Return the schema with these categories; columns whose list is empty are dropped."""
    features = (
        replace(feature, categories=lists[feature.column]) if feature.is_open else feature
        for feature in schema.features
    )
    return replace(schema, features=tuple(own for own in features if not own.is_open))


def dropped_notes(before: Schema, after: Schema) -> list[str]:
    """Say which columns are not used because none of their values is common enough."""
    return [
        f"no value of '{column}' has {MINIMUM_ROWS} training rows over all sites: dropped"
        for column in before.open_columns
        if column not in after.feature_columns
    ]


def complete(rows: ParsedRows, schema: Schema) -> ParsedRows:
    """Return rows whose codes count the agreed categories of all columns."""
    if not rows.features.values:
        return rows
    return replace(rows, features=complete_features(rows.features, schema))


def complete_features(rows: FeatureRows, schema: Schema) -> FeatureRows:
    """Return features whose codes count the agreed categories of all columns."""
    agreed = {feature.column: feature.categories for feature in schema.features}
    codes = {name: codes for name, codes in rows.codes.items() if name in agreed}
    for column in rows.values.keys() & codes.keys():
        places = {value: place for place, value in enumerate(agreed[column])}
        many = len(places)
        place_of = [places.get(value, many + 1) for value in rows.values[column]]
        codes[column] = np.array([*place_of, many], np.int32)[codes[column]]
    return replace(rows, codes=codes, values={})


def _check_list(column: str, values: Sequence[str], schema: Schema) -> None:
    """Refuse lists that are too long, and values that differ only in letter case or spaces."""
    if len(values) > MAX_VALUES:
        raise InputError(_too_many(column))
    two = variants(spellings(pl.Series(values, dtype=pl.String)), ())
    if two is not None and not schema.merge_spellings:
        raise InputError(
            f"column '{column}' has '{two[0]}' and '{two[1]}' at different sites, which differ "
            "only in letter case or spaces; correct one of them, or set merge_spellings = true in "
            "[data] to read them as one"
        )


def _too_many(column: str) -> str:
    return (
        f"category '{column}' has more than {MAX_VALUES:,} values: if they identify rows, remove "
        f'[features.{toml_key(column)}]; if they are a quantity, write kind = "numeric"; else '
        "give coarser codes, such as the first digits"
    )
