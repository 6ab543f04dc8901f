"""Terminal output: tables, texts and progress.

However narrow the terminal, no word is cut, and every figure in a table stays next to its row's
name.
"""

import math
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column, Table
from rich.text import Text

from fedminmax.cli.main import say
from fedminmax.core.text import duration_text, percent

# The width if the output is not a terminal and COLUMNS is not set.
WIDE = 300
# Names and sentences are wrapped, but not to columns narrower than this.
MIN_WRAPPED = 16
# The spaces that the box adds left and right of a table.
BOX = 2
# The indent of figures in a list.
INDENT = 2
Lines = Sequence[Sequence[str]]
# How many groups fit beside a progress bar.
MAX_RISKS = 3
SECONDS_BETWEEN_LINES = 30.0


def wide_console() -> Console:
    """Return a console as wide as the terminal (or COLUMNS); a wide one if neither is known.

    Texts are wrapped, and shown as they are: names and paths may have brackets.
    """
    is_known = sys.stdout.isatty() or "COLUMNS" in os.environ
    width = None if is_known else WIDE
    return Console(width=width, markup=False, highlight=False, emoji=False)


def print_table(
    console: Console,
    title: str,
    headers: Sequence[str],
    lines: Lines,
    *,
    names: int = 1,
    sentences: int = 0,
    sections: bool = False,
) -> None:
    """Print a table; text is shown as it is.

    A table that is too wide is split into several, one below the other, each with the names and as
    many figures as fit. If not even one figure fits beside the names, each line becomes a short
    list.

    Args:
        console: where to print it, and how wide.
        title: the line above it.
        headers: the columns' names.
        lines: the cells, line by line.
        names: how many of the first columns name a line; they are wrapped, never dropped.
        sentences: how many of the last columns are text that may be wrapped.
        sections: whether to insert a gap where the first column changes.
    """
    headers, lines = [printable(header) for header in headers], _printable_lines(lines)
    widths = [
        max(cell_len(header), *(cell_len(line[column]) for line in lines), 1)
        for column, header in enumerate(headers)
    ]
    widths = _wrapped_widths(widths, names, sentences, console.width)
    blocks = _blocks(widths, names, console.width)
    if not blocks:
        _print_lists(console, title, headers, lines, names)
        return
    for number, block in enumerate(blocks, 1):
        columns = [*range(names), *block]
        part = f" ({number} of {len(blocks)})" if len(blocks) > 1 else ""
        if title:
            console.print(Text(printable(title) + part, "italic"))
        table = Table(box=SIMPLE_HEAD, padding=0)
        for column in columns:
            is_text = column < names or column >= len(headers) - sentences
            header, width = Text(headers[column]), widths[column]
            table.add_column(header, justify="left" if is_text else "right", width=width)
        gaps = [*_gaps(lines), False] if sections and lines else [False] * len(lines)
        for line, gap in zip(lines, gaps, strict=True):
            table.add_row(*(Text(line[column]) for column in columns), end_section=gap)
        console.print(table)


def printable(text: str) -> str:
    r"""Escape control characters, so that text from a file cannot control the terminal.

    >>> printable("a\n b"), printable("\x1b[2Jc")
    ('a b', '\\x1b[2Jc')
    """
    line = " ".join(text.split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def _printable_lines(lines: Lines) -> list[list[str]]:
    return [[printable(cell) for cell in line] for line in lines]


def _wrapped_widths(widths: list[int], names: int, sentences: int, room: int) -> list[int]:
    """Wrap sentences, then names, of a table that is too wide."""
    if _total(widths) <= room:
        return widths
    figures, texts = widths[names : len(widths) - sentences], widths[len(widths) - sentences :]
    of_names = max(MIN_WRAPPED, room // 3 // max(1, names))
    shortened = [min(width, of_names) for width in widths[:names]]
    in_full = _with_sentences(widths[:names], figures, texts, room)
    if sentences and _total(in_full) <= room:
        return in_full
    return _with_sentences(shortened, figures, texts, room)


def _with_sentences(
    names: list[int], figures: list[int], sentences: list[int], room: int
) -> list[int]:
    """Give the sentences the width that the other columns leave."""
    left = room - _total([*names, *figures]) - len(sentences)
    each = max(MIN_WRAPPED, left // max(1, len(sentences)))
    return [*names, *figures, *(min(width, each) for width in sentences)]


def _total(widths: Sequence[int]) -> int:
    return BOX + sum(widths) + len(widths) - 1


def _blocks(widths: Sequence[int], names: int, room: int) -> list[list[int]]:
    """Split the columns into blocks that fit beside the names; no blocks if one column does not."""
    blocks: list[list[int]] = [[]]
    for column in range(names, len(widths)):
        beside = [*widths[:names], *(widths[other] for other in blocks[-1]), widths[column]]
        if _total(beside) > room:
            if not blocks[-1] or _total([*widths[:names], widths[column]]) > room:
                return []
            blocks.append([])
        blocks[-1].append(column)
    return blocks


def _print_lists(
    console: Console, title: str, headers: Sequence[str], lines: Lines, names: int
) -> None:
    console.print(Text(printable(title), "italic"))
    for line in lines:
        name = ", ".join(cell for cell in line[:names] if cell)
        console.print(Text(name, "bold"))
        for header, cell in zip(headers[names:], line[names:], strict=True):
            entry = f"{header}: {cell}"
            # Put a figure on a line of its own rather than break it.
            if INDENT + cell_len(entry) > console.width:
                entry = f"{header}:\n{' ' * INDENT}{cell}"
            if cell:
                console.print(Padding(Text(entry), (0, 0, 0, INDENT)))


def _gaps(lines: Lines) -> list[bool]:
    """Return after which lines the setting changes; an empty cell repeats the one above."""
    settings: list[str] = []
    for line in lines:
        settings.append(line[0] or (settings[-1] if settings else ""))
    return [one != other for one, other in pairwise(settings)]


class Display:
    """The progress of a whole job: one bar on a terminal, elsewhere a line every 30 seconds."""

    def __init__(self, bars: Progress, task: TaskID) -> None:
        self._bars = bars
        self._task = task
        self._started = self._said = time.monotonic()

    def plan(self, work: float) -> None:
        """Say how much work there is, once it is known."""
        self._bars.update(self._task, total=work)

    def describe(self, what: str) -> None:
        """Show what is done now."""
        self._bars.update(self._task, description=printable(what))

    def show_work(self, done: float) -> None:
        """Show how much of the work is done."""
        self._bars.update(self._task, completed=done)
        now = time.monotonic()
        if self._bars.disable and now - self._said >= SECONDS_BETWEEN_LINES:
            self._said = now
            task = self._bars.tasks[0]
            share = done / (task.total or math.inf)
            # Most runs end before their last round, so that this is the longest that it can take.
            left = duration_text((now - self._started) * (1 / share - 1)) if share else ""
            say(f"{percent(share)} done{left and f', at most {left} left'}; {task.description}")


@contextmanager
def display(what: str, work: float | None = None) -> Iterator[Display]:
    """Show progress on standard error while the block runs; on a terminal nothing is left of it.

    ``work`` is how much there is to do; None is not known yet.
    """
    with Progress(
        BarColumn(bar_width=20),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}", markup=False, table_column=Column(overflow="ellipsis")),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
        transient=True,
        speed_estimate_period=120.0,
    ) as bars:
        yield Display(bars, bars.add_task(what, total=work))


def highest_risks(
    risks: Iterable[tuple[str, float | None]], weights: Mapping[str, float] | None = None
) -> str:
    """Name the groups with the highest known risks, highest first, and their weights if there are.

    Only these are named where space is short.

    >>> highest_risks([("f", 0.2), ("m", 0.3), ("x", None)])
    'm 0.3, f 0.2'
    >>> highest_risks([("f", 0.2), ("m", 0.3)], {"f": 0.75})
    'm 0.3, f 0.2 (weight 0.75)'
    """
    measured = [(name, risk) for name, risk in risks if risk is not None]
    highest = sorted(measured, key=lambda pair: pair[1], reverse=True)[:MAX_RISKS]
    weighted = {name: f" (weight {weight:.2g})" for name, weight in (weights or {}).items()}
    return ", ".join(f"{name} {risk:.3g}{weighted.get(name, '')}" for name, risk in highest)
