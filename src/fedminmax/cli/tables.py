"""Tables on the terminal."""

import sys
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

# Where no terminal sets the width.
WIDE = 300


def wide_console() -> Console:
    """Return a console of the terminal's width, or of a large one where there is no terminal."""
    return Console(soft_wrap=True, width=None if sys.stdout.isatty() else WIDE)


def table_by_setting(title: str, headers: Sequence[str], lines: Sequence[Sequence[str]]) -> Table:
    """Return a table of settings and methods, with a gap wherever a new setting begins."""
    table = Table(title=title, box=SIMPLE_HEAD, padding=0)
    for number, header in enumerate(headers):
        table.add_column(header, justify="left" if number < 2 else "right", no_wrap=True)
    previous = ""
    for cells in lines:
        if previous and cells[0] not in ("", previous):
            table.add_section()
        previous = cells[0] or previous
        table.add_row(*cells)
    return table


def plain_table(title: str, headers: Sequence[str], lines: Sequence[Sequence[str]]) -> Table:
    """Return a table of names and their figures; words are shown as they are."""
    table = Table(title=title, box=SIMPLE_HEAD, padding=0)
    for number, header in enumerate(headers):
        table.add_column(Text(header), justify="right" if number else "left", no_wrap=number > 0)
    for cells in lines:
        table.add_row(*map(Text, cells))
    return table


def columns_that_fit(headers: Sequence[str], lines: Sequence[Sequence[str]], width: int) -> int:
    """Count the leading columns that fit side by side; results files have all of them.

    >>> columns_that_fit(("a", "b"), [("12345", "678")], 8)
    1
    """
    used = 0
    for number, header in enumerate(headers):
        used += 1 + max(len(header), *(len(line[number]) for line in lines), 0)
        if used > width:
            return number
    return len(headers)
