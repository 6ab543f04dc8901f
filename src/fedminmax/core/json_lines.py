"""Logs of JSON lines: a line per record, appended while a run goes on.

A last line without an end was cut off by a crash, or is being written: it is not part of the log.
"""

import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from fedminmax.core.errors import InputError
from fedminmax.core.files import write_text

ADVICE = "remove it, and the run goes on from its checkpoint"
RecordT = TypeVar("RecordT")


class OfOneRound(Protocol):
    """A record that belongs to a round."""

    @property
    def round(self) -> int:
        """The round's number, from 1."""
        ...


RoundT = TypeVar("RoundT", bound=OfOneRound)


def read_lines(path: Path, advice: str = ADVICE, last_bytes: int | None = None) -> list[str]:
    """Read the lines without their ends; with ``last_bytes`` only those wholly within the end."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        start = 0 if last_bytes is None else max(0, size - last_bytes)
        file.seek(start)
        *lines, _ = file.read().split(b"\n")
    try:
        return [line.decode("utf-8") for line in (lines[1:] if start else lines)]
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is damaged: it is not text; {advice}") from error


def read_records(path: Path, parse: Callable[[Any], RecordT]) -> list[RecordT]:
    """Read a log; a file that is not there has no records."""
    if not path.exists():
        return []
    return _parsed(path, read_lines(path), parse)


def read_rounds_after(
    path: Path, parse: Callable[[Any], RoundT], last_round: int, last_bytes: int
) -> list[RoundT]:
    """Read from the end of a log what comes after a round; nothing before that is looked at."""
    lines = read_lines(path, last_bytes=last_bytes) if path.exists() else []
    found: list[RoundT] = []
    for line in reversed(lines):
        (record,) = _parsed(path, [line], parse)
        if record.round <= last_round:
            break
        found.append(record)
    return found[::-1]


def keep_rounds(path: Path, parse: Callable[[Any], RoundT], last_round: int) -> list[RoundT]:
    """Drop what comes after a round, because it will be done again; return what is left.

    Afterwards the file is there, and ends with a whole line.
    """
    lines = read_lines(path) if path.exists() else []
    kept = [
        (line, record)
        for line, record in zip(lines, _parsed(path, lines, parse), strict=True)
        if record.round <= last_round
    ]
    write_text(path, "".join(f"{line}\n" for line, _ in kept))
    return [record for _, record in kept]


def write_entries(path: Path, entries: Iterable[object]) -> None:
    """Write a whole log at once."""
    write_text(path, "".join(map(_line, entries)))


def append_entry(path: Path, entry: object) -> None:
    """Add a line to a log."""
    with path.open("a", encoding="utf-8") as file:
        file.write(_line(entry))


def _parsed(path: Path, lines: Sequence[str], parse: Callable[[Any], RecordT]) -> list[RecordT]:
    try:
        return [parse(json.loads(line)) for line in lines]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is damaged; {ADVICE}") from error


def _line(entry: object) -> str:
    return json.dumps(entry) + "\n"
