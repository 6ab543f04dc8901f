"""Rows of a file that need attention: what is odd, in which column, how many, where the first is.

Their owner sees the file, the row, and a value that many rows share. What travels (results, card,
report) names columns alone: a row's number leads to a person, and goes when the person goes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from fedminmax.config.messages import toml_key
from fedminmax.core.text import MAX_NAMES, counted, quoted

MAX_FILES = 3


class Oddity(Enum):
    """What is odd about rows, with {} for where."""

    NUL = "NUL bytes, which a text table does not have (write it again): {}"
    UNLISTED = "values that are not among their categories, and are ignored: {}"
    FAR = (
        "values more than 100 times as far from the median as 99 % of the rows, which distort the "
        "scale of all others (correct them, or name them in missing_values): {}"
    )
    CODE = (
        "values far outside the rest that many rows share; if they mean missing, name them in "
        "missing_values of the column's section: {}"
    )


@dataclass(frozen=True)
class OddRows:
    """Some rows of a file, the first one's number, and the value that they share, if any."""

    oddity: Oddity
    source: str
    column: str
    rows: int
    first: int
    value: float | None = None


def shown_here(found: Iterable[OddRows]) -> list[str]:
    """Return a warning for each oddity, for the rows' owner: with files and row numbers."""
    return [_line(oddity, _places(rows)) for oddity, rows in _by_oddity(found)]


def without_rows(found: Iterable[OddRows]) -> list[str]:
    """Return a warning for each oddity that may travel: it names columns alone."""
    return [
        oddity.value.format(quoted(list(dict.fromkeys(own.column for own in rows))))
        if rows[0].column
        else oddity.value.format("in some rows")
        for oddity, rows in _by_oddity(found)
    ]


def _by_oddity(found: Iterable[OddRows]) -> list[tuple[Oddity, list[OddRows]]]:
    rows = list(found)
    each = [(oddity, [own for own in rows if own.oddity is oddity]) for oddity in Oddity]
    return [(oddity, own) for oddity, own in each if own]


def _places(rows: Sequence[OddRows]) -> list[str]:
    """Say where odd rows are, with all files of one column and value together."""
    together: dict[tuple[str, float | None], list[OddRows]] = {}
    for own in rows:
        together.setdefault((own.column, own.value), []).append(own)
    return [_place(column, value, own) for (column, value), own in together.items()]


def _place(column: str, value: float | None, rows: Sequence[OddRows]) -> str:
    total = counted(sum(own.rows for own in rows), "row")
    files = ", ".join(f"{own.source} (first: row {own.first})" for own in rows[:MAX_FILES])
    others = len(rows) - MAX_FILES
    more = f" and {counted(others, 'more file')}" if others > 0 else ""
    if value is None:
        start = f"'{column}' in {total}" if column else total
        return f"{start} of {files}{more}"
    line = f'missing_values = ["{value:g}"] in [features.{toml_key(column)}]'
    return f"'{column}' is {value:g} in {total} of {files}{more} ({line})"


def _line(oddity: Oddity, places: Sequence[str]) -> str:
    more = f" and {len(places) - MAX_NAMES} more" if len(places) > MAX_NAMES else ""
    return oddity.value.format(", ".join(places[:MAX_NAMES]) + more)
