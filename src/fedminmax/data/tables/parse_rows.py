"""Parse a table into rows that match the schema: numbers, category codes, target and groups."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedminmax.config.schema import Feature, Kind, Schema, Target
from fedminmax.core.errors import InputError
from fedminmax.core.text import quoted
from fedminmax.data.strata import number_of_name
from fedminmax.data.tables import parse_columns
from fedminmax.data.tables.groups import GroupKey, parse_groups
from fedminmax.data.tables.odd_rows import Oddity, OddRows
from fedminmax.data.tables.read_file import FileTable


@dataclass(frozen=True, eq=False)
class FeatureRows:
    """The features of some rows, before the encoding.

    ``quantities`` are NaN where missing. ``codes`` count a feature's categories from 0; the next
    number stands for a missing value, the one after it for a category that is not listed. Until the
    sites agree on the categories of a column, its ``values`` are those of the table.
    """

    count: int
    quantities: dict[str, NDArray[np.float64]]
    codes: dict[str, NDArray[np.int32]]
    odd: tuple[OddRows, ...] = ()
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def take(self, rows: NDArray[np.int64]) -> "FeatureRows":
        """Return these rows, in this order."""
        return FeatureRows(
            len(rows),
            {name: values[rows] for name, values in self.quantities.items()},
            {name: codes[rows] for name, codes in self.codes.items()},
            values=self.values,
        )


@dataclass(frozen=True, eq=False)
class ParsedRows:
    """Rows with their target (class numbers or quantities) and their group.

    ``group`` holds positions in ``group_keys``, or LEFT_OUT for rows without a protected value that
    the user wants to skip. ``numbers`` are the rows' numbers in their file, from 1. ``person`` is
    the number of each row's person, the same in every file; None without a person column.
    """

    features: FeatureRows
    target: NDArray[np.int64] | NDArray[np.float64]
    group: NDArray[np.int64]
    _: KW_ONLY
    group_keys: tuple[GroupKey, ...]
    numbers: NDArray[np.int64]
    person: NDArray[np.uint64] | None = None

    def __len__(self) -> int:
        return len(self.group)

    def take(self, rows: NDArray[np.int64]) -> "ParsedRows":
        """Return these rows, in this order."""
        return ParsedRows(
            self.features.take(rows),
            self.target[rows],
            self.group[rows],
            group_keys=self.group_keys,
            numbers=self.numbers[rows],
            person=None if self.person is None else self.person[rows],
        )


def parse_rows(table: FileTable, schema: Schema) -> ParsedRows:
    """Read all columns of the schema; an error names the first invalid value."""
    table.require(schema.columns, "which the configuration names")
    group, keys = parse_groups(table, schema)
    target = _parse_target(table, schema)
    numbers = table.row_numbers.to_numpy()
    person = _parse_persons(table, schema)
    return ParsedRows(
        parse_features(table, schema),
        target,
        group,
        group_keys=tuple(keys),
        numbers=numbers,
        person=person,
    )


def _parse_persons(table: FileTable, schema: Schema) -> NDArray[np.uint64] | None:
    if schema.person_column is None:
        return None
    values = parse_columns.read_values(table, schema.person_column, schema)
    if values.null_count():
        raise InputError(
            f"{table.title}: person column '{schema.person_column}', "
            f"{table.first_missing(schema.person_column, values.is_null())}; correct or remove "
            "these rows"
        )
    names, persons = np.unique(values.to_numpy().astype(str), return_inverse=True)
    return np.array([number_of_name(name) for name in names.tolist()], np.uint64)[persons]


def parse_features(table: FileTable, schema: Schema) -> FeatureRows:
    """Read only the features, which is all that a prediction needs."""
    table.require(schema.feature_columns, "which is a feature")
    quantities: dict[str, NDArray[np.float64]] = {}
    codes: dict[str, NDArray[np.int32]] = {}
    open_values: dict[str, tuple[str, ...]] = {}
    odd = list(table.odd)
    for feature in schema.features:
        if feature.is_open:
            texts = parse_columns.read_values(table, feature.column, schema)
            values = tuple(texts.drop_nulls().unique().sort().to_list())
            open_values[feature.column] = values
            codes[feature.column] = _positions(texts, values).fill_null(len(values)).to_numpy()
        elif feature.kind is Kind.CATEGORY:
            codes[feature.column], unseen = _parse_category(table, feature, schema)
            odd += unseen
        else:
            column = parse_columns.column_of(feature, schema.units.get(feature.column, ""))
            quantities[feature.column] = parse_columns.parse_numbers(
                table, column, schema.missing_of(column.name)
            )
    return FeatureRows(len(table.frame), quantities, codes, tuple(odd), open_values)


def _parse_category(
    table: FileTable, feature: Feature, schema: Schema
) -> tuple[NDArray[np.int32], list[OddRows]]:
    values = parse_columns.read_values(table, feature.column, schema, feature.categories)
    positions = _positions(values, feature.categories)
    unseen = positions.is_null() & values.is_not_null()
    many = len(feature.categories)
    codes = positions.fill_null(many).set(unseen, many + 1).to_numpy()
    if not unseen.any():
        return codes, []
    _, row = table.first_row(unseen)
    count = int(unseen.sum())
    return codes, [OddRows(Oddity.UNLISTED, table.source, feature.column, count, row)]


def _positions(text: pl.Series, values: tuple[str, ...]) -> pl.Series:
    """Return the position of each text in a list, null if it is not in it."""
    return text.cast(pl.Enum(values), strict=False).to_physical().cast(pl.Int32)


def _parse_target(table: FileTable, schema: Schema) -> NDArray[np.int64] | NDArray[np.float64]:
    target = schema.target
    if target.is_quantity:
        values = parse_columns.text_of(table.frame[target.column], schema.missing_of(target.column))
    else:
        values = parse_columns.read_values(table, target.column, schema, target.classes)
    if values.null_count():
        raise InputError(
            f"{table.title}: target '{target.column}', "
            f"{table.first_missing(target.column, values.is_null())}; remove rows without a target"
        )
    if target.is_quantity:
        fix = 'correct it, or set task = "classification" in [data]'
        column = parse_columns.Column(target.column, Kind.NUMERIC, fix)
        return parse_columns.parse_numbers(table, column, schema.missing_of(column.name))
    return _parse_classes(table, values, target)


def _parse_classes(table: FileTable, text: pl.Series, target: Target) -> NDArray[np.int64]:
    labels = _positions(text, target.classes)
    if labels.null_count():
        position, row = table.first_row(labels.is_null())
        raise InputError(
            f"{table.title}: target '{target.column}', row {row}: '{text[position]}' is not a "
            f"class; expected {quoted(target.classes)}; correct it, or add it to classes in [data]"
        )
    return labels.cast(pl.Int64).to_numpy()
