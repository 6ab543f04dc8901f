"""Parse a table into rows that match the schema: numbers, category codes, target and groups."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedminmax.config.schema import Feature, Kind, Schema, Target
from fedminmax.core.errors import InputError
from fedminmax.core.examples import gathered, portions, taken
from fedminmax.core.text import quoted
from fedminmax.data.partition import number_of_name
from fedminmax.data.tables import parse_columns
from fedminmax.data.tables.groups import LEFT_OUT, GroupKey, parse_groups
from fedminmax.data.tables.odd_rows import Oddity, OddRows, together
from fedminmax.data.tables.read_file import FileTable

KindT = TypeVar("KindT")


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
            {name: taken(values, rows) for name, values in self.quantities.items()},
            {name: taken(codes, rows) for name, codes in self.codes.items()},
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
            taken(self.target, rows),
            taken(self.group, rows),
            group_keys=self.group_keys,
            numbers=taken(self.numbers, rows),
            person=None if self.person is None else taken(self.person, rows),
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


@dataclass(frozen=True, eq=False)
class FileRows:
    """The rows of a file, its columns, and the number of each row's site among ``sites``.

    Without a site column, no row has such a number.
    """

    rows: ParsedRows
    columns: tuple[str, ...]
    sites: tuple[str, ...] = ()
    site: NDArray[np.int64] | None = None


def parse_pieces(
    pieces: Iterable[FileTable], schema: Schema, site_column: str | None = None
) -> FileRows:
    """Read the rows of a file's pieces, as if they were one table."""
    seen = _Seen({}, {column: {} for column in schema.open_columns}, {}, [], [])
    found = gathered(_numbered_parts(pieces, schema, site_column, seen))
    codes = {name: own for (kind, name), own in found.items() if kind == "code"}
    lists = {column: tuple(sorted(own)) for column, own in seen.values.items()}
    for column, values in lists.items():
        place = {value: number for number, value in enumerate(values)}
        # A missing value was -1, the last one.
        places = np.array([*map(place.__getitem__, seen.values[column]), len(values)], np.int32)
        for part in portions(len(codes[column])):
            codes[column][part] = places[codes[column][part]]
    group = found["", "group"]
    quantities = {name: own for (kind, name), own in found.items() if kind == "quantity"}
    rows = ParsedRows(
        FeatureRows(len(group), quantities, codes, together(seen.odd), lists),
        found["", "target"],
        group,
        group_keys=tuple(seen.keys),
        numbers=found["", "numbers"],
        person=found.get(("", "person")),
    )
    return FileRows(rows, tuple(seen.columns), tuple(seen.sites), found.get(("", "site")))


@dataclass(frozen=True, eq=False)
class _Seen:
    """What the pieces so far had, with a number each in the order in which they came."""

    keys: dict[GroupKey, int]
    values: Mapping[str, dict[str, int]]
    sites: dict[str, int]
    odd: list[OddRows]
    columns: list[str]


def _numbered_parts(
    pieces: Iterable[FileTable], schema: Schema, site_column: str | None, seen: _Seen
) -> Iterator[dict[tuple[str, str], NDArray[Any]]]:
    """Yield each piece's columns, with the same numbers for groups, categories and sites."""
    for table in pieces:
        rows = parse_rows(table, schema)
        features = rows.features
        seen.odd.extend(features.odd)
        seen.columns[:] = table.frame.columns
        codes = dict(features.codes)
        for column, values in features.values.items():
            numbers = _numbers(seen.values[column], values).astype(np.int32)
            codes[column] = numbers[codes[column]]
        parts: dict[tuple[str, str], NDArray[Any]] = {
            ("", "target"): rows.target,
            ("", "group"): _numbers(seen.keys, rows.group_keys)[rows.group],
            ("", "numbers"): rows.numbers,
        }
        parts |= {("quantity", name): own for name, own in features.quantities.items()}
        parts |= {("code", name): own for name, own in codes.items()}
        if rows.person is not None:
            parts["", "person"] = rows.person
        if site_column is not None:
            names, site = np.unique(_site_names(table, site_column, schema), return_inverse=True)
            parts["", "site"] = _numbers(seen.sites, names.tolist())[site]
        yield parts


def _numbers(known: dict[KindT, int], names: Iterable[KindT]) -> NDArray[np.int64]:
    """Return each name's number, new or known, and then -1."""
    return np.array([*(known.setdefault(name, len(known)) for name in names), LEFT_OUT], np.int64)


def _site_names(table: FileTable, column: str, schema: Schema) -> NDArray[np.str_]:
    table.require([column], "which [data] names as the site column")
    owners = parse_columns.read_values(table, column, schema)
    if owners.null_count():
        raise InputError(
            f"{table.title}: site column '{column}', "
            f"{table.first_missing(column, owners.is_null())}; correct or remove these rows"
        )
    return owners.to_numpy().astype(str)


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
