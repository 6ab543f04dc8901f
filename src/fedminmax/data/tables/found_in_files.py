"""What `fedminmax init` finds in the files that their owner must know: typos, codes, lost columns.

These remarks are for the screen alone: they may name files, rows and values.
"""

import shlex
from collections.abc import Mapping, Sequence

import polars as pl

from fedminmax.config.schema import PROPOSED_MISSING_VALUES, Target
from fedminmax.config.spellings import by_value
from fedminmax.core.errors import InputError
from fedminmax.core.text import MAX_NAMES, counted, quoted
from fedminmax.data.tables.infer import Guess, stray_values
from fedminmax.data.tables.notation import with_iso_dates, with_plain_numbers
from fedminmax.data.tables.number_roles import LEADING_ZERO
from fedminmax.data.tables.parse_columns import text_of
from fedminmax.data.tables.read_file import Table

MAX_ROWS_NAMED = 3


def plain_texts(table: Table, column: str) -> pl.Series:
    """Return a column as texts, with numbers and dates in plain notation."""
    text = text_of(table.frame[column], PROPOSED_MISSING_VALUES)
    return with_iso_dates(with_plain_numbers(text, table.format), table.format)


def common_columns(tables: Sequence[Table]) -> tuple[list[str], dict[str, list[str]]]:
    """Return the columns of all files, and the files of each of the other columns.

    Names that differ only in letter case or spaces are refused: nobody wants to lose such a column.
    """
    having: dict[str, list[str]] = {}
    for table in tables:
        for column in table.frame.columns:
            having.setdefault(column, []).append(table.source)
    common = [column for column, files in having.items() if len(files) == len(tables)]
    partial = {column: files for column, files in having.items() if len(files) < len(tables)}
    folded: dict[str, str] = {}
    for column in partial:
        other = folded.setdefault("".join(column.lower().split()), column)
        if other != column:
            raise InputError(
                f"{partial[column][0]} has a column '{column}' and {partial[other][0]} has "
                f"'{other}'; give them the same name"
            )
    return common, partial


def partial_note(partial: Mapping[str, Sequence[str]]) -> list[str]:
    """Say which columns are not used because some files lack them."""
    if not partial:
        return []
    named = [f"'{column}' (only in {', '.join(files[:2])})" for column, files in partial.items()]
    more = f" and {len(named) - MAX_NAMES} more" if len(named) > MAX_NAMES else ""
    shown = ", ".join(named[:MAX_NAMES])
    return [f"columns that some files lack are not used: {shown}{more}"]


def codes_note(tables: Sequence[Table], features: Mapping[str, Guess]) -> list[str]:
    """Name numbers that may be codes, the word that makes them categories, and lost zeros."""
    columns = [column for column, guess in features.items() if guess.may_be_codes]
    if not columns:
        return []
    words = shlex.quote(",".join(columns[:MAX_NAMES]))
    first = f"numbers that may be codes are read as quantities: {quoted(columns)}"
    notes = [f"{first}; for codes give --category {words}"]
    for column in columns:
        zeros = {table.source: _leading_zeros(table, column) for table in tables}
        if len(set(zeros.values())) > 1:
            having, lacking = (
                [source for source, own in zeros.items() if own is found] for found in (True, False)
            )
            notes.append(
                f"column '{column}' has leading zeros in {', '.join(having[:3])} and none in "
                f"{', '.join(lacking[:3])}: if they were lost there, write them again"
            )
    return notes


def _leading_zeros(table: Table, column: str) -> bool:
    texts = text_of(table.frame[column], PROPOSED_MISSING_VALUES)
    return bool(texts.str.contains(LEADING_ZERO).any())


def check_strays(tables: Sequence[Table], pooled: pl.Series, what: str, fix: str) -> None:
    """Refuse numbers that hardly occur in a column of two others, with their rows."""
    strays, column = stray_values(pooled), pooled.name
    if not strays:
        return
    known = pooled.drop_nulls()
    usual = known.filter(~known.is_in(list(strays)))
    both = " or ".join(sorted(usual.unique().to_list()))
    raise InputError(
        f"{what} '{column}' is {both} in {len(usual):,} of {counted(len(known), 'row')}, and "
        f"something else in {_rows_with(tables, column, strays)}: correct them, or {fix}"
    )


def rare_classes(
    tables: Sequence[Table], pooled: pl.Series, target: Target, minimum: int
) -> tuple[str, ...]:
    """Say which classes have so few rows that they may be typos."""
    if target.is_quantity:
        return ()
    counts = dict(pooled.drop_nulls().value_counts(name="rows").rows())
    return tuple(
        f"class '{name}' has {counted(counts[name], 'row')} "
        f"({_rows_with(tables, target.column, [name])}): if it is a typo, correct it"
        for name in target.classes
        if counts[name] < minimum <= max(counts.values())
    )


def _rows_with(tables: Sequence[Table], column: str, values: Sequence[str]) -> str:
    """Say in which rows of which files a column has one of these values, the first few of many."""
    rows = [
        f"{table.source} row {row}"
        for table in tables
        for row in table.row_numbers.filter(_by_value(table, column).is_in(list(values)))
    ]
    more = f" and {len(rows) - MAX_ROWS_NAMED:,} more" if len(rows) > MAX_ROWS_NAMED else ""
    return f"{', '.join(rows[:MAX_ROWS_NAMED])}{more}"


def _by_value(table: Table, column: str) -> pl.Series:
    return by_value(plain_texts(table, column))
