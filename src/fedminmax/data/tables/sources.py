"""Split a configured file into the rows of its owners, and each owner's rows into parts.

Every site separately holds rows out for testing and sets rows aside for validation.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedminmax.config.file_format import NO_CHANGES, PLAIN, FileFormat, FormatChanges, check_format
from fedminmax.config.read import Source, TableConfig
from fedminmax.config.schema import Schema
from fedminmax.core.errors import InputError
from fedminmax.core.files import write_text
from fedminmax.core.randomness import Purpose
from fedminmax.core.text import counted, quoted
from fedminmax.data.partition import (
    Positions,
    number_of_name,
    row_numbers,
    split_persons,
    split_strata,
)
from fedminmax.data.tables.groups import LEFT_OUT
from fedminmax.data.tables.odd_rows import (
    Oddity,
    OddRows,
    codes_for_missing,
    outlier_rows,
    shown_here,
)
from fedminmax.data.tables.parse_rows import ParsedRows, parse_pieces
from fedminmax.data.tables.read_file import name_without_ending, read_pieces

HELD_OUT_FILE = "held_out.json"


@dataclass(frozen=True, eq=False)
class OwnedRows:
    """The rows of one owner that are used, and the number of those that are not."""

    source: str
    owner: str
    rows: ParsedRows
    left_out: int


@dataclass(frozen=True, eq=False)
class SourceRows:
    """All parts of one file, its unused columns, and rows that need attention."""

    parts: tuple[OwnedRows, ...]
    unused_columns: tuple[str, ...]
    odd: tuple[OddRows, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is odd, for the rows' owner."""
        return tuple(shown_here(self.odd))


def format_of_file(
    path: Path, config: TableConfig, changes: FormatChanges
) -> tuple[FileFormat, tuple[str, ...]]:
    """Return the format of a file outside the configuration, and warnings about that choice.

    A file with the name of one site, or of one site's file, has that site's format.
    """
    sources = [source for source in (*config.training, *config.test) if source.owner is not None]
    with_formats = [source for source in sources if source.format is not None]
    named = [source for source in sources if source.owner == name_without_ending(path)] or [
        source for source in sources if source.path.name == path.name
    ]
    is_known = len({source.format for source in named}) == 1
    agreed = named[0].format if is_known else None
    warnings: list[str] = []
    if agreed is not None:
        warnings.append(f"{path}: read in the format of site '{named[0].owner}', by its name")
    elif with_formats and not is_known and changes == NO_CHANGES:
        others = quoted(list(dict.fromkeys(str(source.owner) for source in with_formats)))
        warnings.append(
            f"{path}: read in the format of [data], but files of {others} have another one: if "
            "this file has, too, give --decimal, --thousands, --date-format or --encoding"
        )
    return check_format(changes.apply(agreed or config.format), "the command's"), tuple(warnings)


def read_source(source: Source, config: TableConfig) -> SourceRows:
    """Read and check a configured file, and assign its rows to their owners."""
    source = replace(source, format=source.format or config.format)
    return read_file_rows(source, config.schema, config.site_column)


def read_file_rows(source: Source, schema: Schema, column: str | None) -> SourceRows:
    """Read and check a file; without an owner, this site column names it row by row."""
    site_column = column if source.owner is None else None
    wanted = (*schema.columns, site_column) if site_column else schema.columns
    pieces = read_pieces(source.path, wanted, source.format or PLAIN)
    file = parse_pieces(pieces, schema, site_column)
    rows, name = file.rows, str(source.path)
    used = set(wanted)
    unused = tuple(column for column in file.columns if column not in used)
    if file.site is None:
        owned: tuple[OwnedRows, ...] = (_part(name, str(source.owner), rows),)
    else:
        owned = tuple(_split(name, rows, file.sites, file.site))
    quantities = dict(rows.features.quantities)
    if schema.target.is_quantity:
        quantities[schema.target.column] = rows.target.astype(np.float64)
    odd = [
        entry
        for column, values in quantities.items()
        for entry in _odd_numbers(name, rows, column, values)
    ]
    return SourceRows(owned, unused, (*rows.features.odd, *odd))


def _odd_numbers(
    source: str, rows: ParsedRows, column: str, values: NDArray[np.float64]
) -> list[OddRows]:
    """Refuse rows that are too far from all others; return those that are far or share a code."""
    far, too_far = outlier_rows(values)
    if too_far.any():
        first = int(too_far.argmax())
        raise InputError(
            f"{source} ({counted(len(rows), 'row')}): column '{column}', row "
            f"{int(rows.numbers[first])} is "
            f"{values[first]:g}, so far from the others that these would all look the same "
            f"({int(too_far.sum()):,} such rows); correct it, or add it to missing_values in [data]"
        )
    codes = codes_for_missing(values)
    shared: list[tuple[Oddity, NDArray[np.bool_], float | None]] = [
        (Oddity.CODE, values == code, code) for code in codes
    ]
    odd = [*shared, (Oddity.FAR, far & ~np.isin(values, codes) if codes else far, None)]
    return [
        OddRows(
            oddity,
            source,
            column,
            int(having.sum()),
            int(rows.numbers[int(having.argmax())]),
            code,
        )
        for oddity, having, code in odd
        if having.any()
    ]


def _split(
    source: str, rows: ParsedRows, sites: Sequence[str], site: NDArray[np.int64]
) -> Iterator[OwnedRows]:
    """Yield each site's rows, in the order of the sites' names."""
    order = np.argsort(site, kind="stable")
    ends = np.cumsum(np.bincount(site))[:-1]
    parts = dict(zip(sites, np.split(order, ends), strict=True))
    for name in sorted(parts):
        yield _part(source, name, rows.take(parts[name]))


def _part(source: str, owner: str, rows: ParsedRows) -> OwnedRows:
    taking_part = rows.group != LEFT_OUT
    if taking_part.all():
        return OwnedRows(source, owner, rows, 0)
    kept = rows.take(np.flatnonzero(taking_part))
    return OwnedRows(source, owner, kept, len(rows) - len(kept))


def hold_out(
    rows: ParsedRows,
    share: float,
    *,
    seed: int,
    site: str,
    purpose: Purpose = Purpose.FOLDS,
    by_row: bool = False,
) -> tuple[Positions, Positions]:
    """Return the positions of training rows and of held-out rows, each ascending.

    ``by_row`` draws each row by itself, so that no row decides where others are.
    """
    if rows.person is not None:
        return split_persons(rows.person, share, seed, purpose)
    if by_row:
        return split_persons(_row_numbers(rows), share, seed, purpose)
    labels = rows.target if rows.target.dtype == np.int64 else np.zeros(len(rows), np.int64)
    strata = np.stack([rows.group, labels.astype(np.int64)])
    return split_strata(strata, share, seed=seed, site=site, purpose=purpose)


def _row_numbers(rows: ParsedRows) -> NDArray[np.uint64]:
    # Positions of groups depend on which groups the table has; their keys do not.
    keys = np.array([number_of_name(repr(key)) for key in rows.group_keys], dtype=np.uint64)
    features = rows.features
    columns = [*features.quantities.values(), *features.codes.values(), rows.target]
    return row_numbers([*columns, keys.view(np.int64)[rows.group]], len(rows))


@dataclass(frozen=True)
class ListedRows:
    """The share of rows that each site sets aside, and the numbers of those rows.

    Row numbers in the site's file count from 1 without the header.
    """

    share: float
    rows: Mapping[str, Positions]

    def __len__(self) -> int:
        return sum(map(len, self.rows.values()))

    def as_json(self) -> dict[str, object]:
        """Return JSON-compatible data."""
        numbers = {name: positions.tolist() for name, positions in self.rows.items()}
        return {"share": self.share, "rows": numbers}


def write_held_out(path: Path, seed: int, held_out: ListedRows, validation: ListedRows) -> None:
    """List which rows were held out and set aside, so that others can check the results.

    The file has row numbers but no values.
    """
    about = (
        "numbers of the rows held out for testing, and under validation of those that chose the "
        "round, from 1 in each site's file, without the header; blank lines count"
    )
    content = {"format": 1, "about": about, "seed": seed, **held_out.as_json()}
    if len(validation):
        content["validation"] = validation.as_json()
    write_text(path, json.dumps(content) + "\n")
