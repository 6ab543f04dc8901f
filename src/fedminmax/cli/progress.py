"""Progress over runs and rounds with the remaining time, on a terminal only."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class Display:
    """Two bars: the work of the whole command, and the rounds of the present run."""

    def __init__(self, overall: Progress, work: TaskID, rounds: TaskID) -> None:
        self._bars = overall
        self._work = work
        self._rounds = rounds

    def start_run(self, name: str, rounds: int) -> None:
        """Show a new run."""
        self._bars.reset(self._rounds, total=rounds, description=name)

    def rename_run(self, name: str) -> None:
        """Show other words beside the present run's bar."""
        self._bars.update(self._rounds, description=name)

    def show_round(self, number: int) -> None:
        """Show that a round is done."""
        self._bars.update(self._rounds, completed=number)

    def show_work(self, done: float) -> None:
        """Show how much of all work is done."""
        self._bars.update(self._work, completed=done)


@contextmanager
def display(title: str, work: float) -> Iterator[Display]:
    """Show bars on standard error while the block runs; nothing if that is not a terminal."""
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[unit]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not sys.stderr.isatty(),
        speed_estimate_period=120.0,
    ) as bars:
        overall = bars.add_task(title, total=work, unit="of all work")
        rounds = bars.add_task("", total=1, unit="of its rounds")
        yield Display(bars, overall, rounds)
