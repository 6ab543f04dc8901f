"""Groups: the values of the sensitive attributes, crossed, that occur among training rows."""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedminmax.config.file_format import spellings, variants
from fedminmax.config.messages import toml_key
from fedminmax.config.schema import Kind, MissingGroup, Protected, Schema
from fedminmax.core.errors import InputError
from fedminmax.core.examples import counted_each
from fedminmax.core.small_groups import MERGED_NAME
from fedminmax.core.text import counted
from fedminmax.data.tables.parse_columns import Column, parse_numbers, read_values
from fedminmax.data.tables.read_file import FileTable

GroupKey = tuple[str | None, ...]


"""One value (or band) per sensitive attribute; None where it is missing."""
LEFT_OUT = -1
# The value of every sensitive attribute of groups that were merged because each was too small: to
# be disclosed by a site, or for minimax training. Values are trimmed when read, so none in a table
# begins with a space.
MERGED_VALUE = " merged"
# Stands for all values that are not listed, if these form their own group.
OTHER_VALUE = " other"
# Like numbers and single letters, these need the name of their column.
UNSPECIFIC_VALUES = ("true", "false", "yes", "no")


def parse_groups(table: FileTable, schema: Schema) -> tuple[NDArray[np.int64], list[GroupKey]]:
    """Return each row's position in the list of keys, or LEFT_OUT; keys have no order."""
    values = pl.DataFrame([_labels(table, entry, schema) for entry in schema.protected])
    missing = values.select(pl.any_horizontal(pl.all().is_null())).to_series()
    if schema.missing_group is MissingGroup.ERROR and missing.any():
        position, _ = table.first_row(missing)
        column = next(name for name in values.columns if values[name][position] is None)
        raise InputError(
            f"{table.title}: sensitive attribute '{column}', "
            f"{table.first_missing(column, missing)}; "
            'correct it, or set missing in [groups] to "own_group" or "leave_out"'
        )
    keys = values.unique(maintain_order=True)
    numbered = keys.with_columns(number=pl.int_range(len(keys), dtype=pl.Int64))
    joined = values.join(
        numbered, on=values.columns, how="left", nulls_equal=True, maintain_order="left"
    )
    group = joined["number"].to_numpy()
    if schema.missing_group is MissingGroup.LEAVE_OUT:
        group = np.where(missing.to_numpy(), LEFT_OUT, group)
    if schema.unlisted_group is MissingGroup.LEAVE_OUT:
        listed = [all(map(is_known, key, schema.protected)) for key in keys.rows()]
        group = np.where(np.array(listed, dtype=bool)[group], group, LEFT_OUT)
    return group, keys.rows()


def check_listed(
    group: NDArray[np.int64], keys: Sequence[GroupKey], schema: Schema, source: str
) -> None:
    """Refuse training rows with a protected value that was not agreed on."""
    # The first count is of rows that are left out.
    counts = counted_each(group - LEFT_OUT, len(keys) + 1)[1:].tolist()
    for place, entry in enumerate(schema.protected):
        unlisted: Counter[str | None] = Counter()
        for key, count in zip(keys, counts, strict=True):
            if count and not is_known(key[place], entry):
                unlisted[key[place]] += count
        for value, count in unlisted.most_common(1):
            raise InputError(
                f"{source}: sensitive attribute '{entry.column}' is '{value}' in "
                f"{counted(count, 'row')}, which [groups.values] does not list; correct it, list "
                "it, or set unlisted in "
                '[groups] to "own_group" or "leave_out"'
            )


def _labels(table: FileTable, protected: Protected, schema: Schema) -> pl.Series:
    """Return the value or band of each row, named like the column."""
    if not protected.edges:
        values = read_values(table, protected.column, schema, protected.values)
        if protected.values and schema.unlisted_group is MissingGroup.OWN_GROUP:
            return values.set(~values.is_in(list(protected.values)), OTHER_VALUE)
        return values
    fix = f"correct it, or remove {toml_key(protected.column)} from [groups.bands]"
    column = Column(protected.column, Kind.NUMERIC, fix)
    numbers = parse_numbers(table, column, schema.missing_of(column.name))
    bands = pl.Series(protected.column, protected.bands, dtype=pl.String)
    # An edge belongs to the band above it. NaN would sort above all edges.
    labels = bands.gather(np.digitize(numbers, np.asarray(protected.edges)))
    return labels.set(pl.Series(np.isnan(numbers)), None)


def check_spellings(keys: Iterable[GroupKey], schema: Schema) -> None:
    """Refuse groups of different sites that differ only in letter case or spaces."""
    for entry, values in zip(schema.protected, zip(*keys, strict=True), strict=True):
        texts = [value for value in values if value not in (OTHER_VALUE, MERGED_VALUE)]
        two = variants(spellings(pl.Series(texts, dtype=pl.String)), entry.values)
        if two is not None:
            raise InputError(
                f"sensitive attribute '{entry.column}' has '{two[0]}' and '{two[1]}' at different "
                "sites, which differ only in letter case or spaces; correct one of them, or set "
                "merge_spellings = true in [data] to read them as one"
            )


def is_known(value: str | None, entry: Protected) -> bool:
    """Return whether a value or band was agreed on; missing values are checked elsewhere."""
    known = entry.bands or entry.values
    return not known or value is None or value in (*known, OTHER_VALUE)


def merged_key(schema: Schema) -> GroupKey:
    """Return the key of the group that small groups are merged into, the same at every site."""
    return (MERGED_VALUE,) * len(schema.protected)


def sort_groups(keys: Iterable[GroupKey], schema: Schema) -> tuple[GroupKey, ...]:
    """Order by column: bands from low to high, values by alphabet, then other, missing, merged."""

    def place(key: GroupKey) -> list[tuple[int, int, str]]:
        return [
            (_rank(value), entry.bands.index(value) if value in entry.bands else 0, value or "")
            for entry, value in zip(schema.protected, key, strict=True)
        ]

    return tuple(sorted(set(keys), key=place))


def group_name(key: GroupKey, schema: Schema) -> str:
    """Return the display name of a group.

    >>> from fedminmax.config.schema import Target
    >>> schema = Schema(Target("y"), (), (Protected("sex"), Protected("smoker")))
    >>> group_name(("Female", "1"), schema), group_name((None, "no"), schema)
    ('Female / smoker 1', 'sex missing / smoker no')
    """
    if key == merged_key(schema):
        return MERGED_NAME
    return " / ".join(
        _value_name(entry, value) for entry, value in zip(schema.protected, key, strict=True)
    )


def _rank(value: str | None) -> int:
    return {OTHER_VALUE: 1, None: 2, MERGED_VALUE: 3}.get(value, 0)


def _value_name(protected: Protected, value: str | None) -> str:
    if value is None:
        return f"{protected.column} missing"
    if value == OTHER_VALUE:
        return f"{protected.column} other"
    is_specific = (
        len(value) > 1 and not value[0].isdigit() and value.lower() not in UNSPECIFIC_VALUES
    )
    return value if is_specific else f"{protected.column} {value}"
