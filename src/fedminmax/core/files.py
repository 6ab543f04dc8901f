"""Files that are written in full or not at all, logs of JSON lines, and lock files.

A file is written under a temporary name in the same folder and then renamed, so readers see all of
it or none.

A log has one line per record and grows during a run. A last line without a newline was cut off by a
crash, or is still being written: it is not part of the log.

A lock file is held by one process at a time. When the process ends, the system lets go of it.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

from filelock import FileLock, Timeout

from fedminmax.core.errors import InputError

ADVICE = "remove it, and the run goes on from its checkpoint"
RecordT = TypeVar("RecordT")


@contextmanager
def atomic_write(path: Path, backup: Path | None = None) -> Iterator[Path]:
    """Yield a temporary path to write to; after the block it is renamed to ``path``.

    A previous file is overwritten, or renamed to ``backup``.
    """
    with _temporary_name(path) as temporary:
        yield temporary
        _sync(temporary)
        if backup is not None:
            path.replace(backup)
        temporary.replace(path)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    write_bytes(path, text.encode())


def write_copy(source: Path, path: Path) -> None:
    """Copy a file's content atomically."""
    with atomic_write(path) as temporary:
        shutil.copyfile(source, temporary)


def write_json(path: Path, content: object) -> None:
    """Write a JSON file atomically, indented, with a final newline."""
    write_text(path, _as_json(content))


def write_json_once(path: Path, content: object) -> None:
    """Write a JSON file unless it exists: of several concurrent calls, the first one wins."""
    with _temporary_name(path) as temporary:
        temporary.write_text(_as_json(content), encoding="utf-8")
        _sync(temporary)
        with suppress(FileExistsError):
            os.link(temporary, path)


@contextmanager
def _temporary_name(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder; the file is removed in any case."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Several processes may write to one folder: each has its own temporary file.
    temporary = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Flush a file to disk: after a power cut, its name must not survive without its content."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _as_json(content: object) -> str:
    return json.dumps(content, indent=2) + "\n"


class HasRound(Protocol):
    """A record that belongs to a round."""

    @property
    def round(self) -> int:
        """The round's number, from 1."""
        ...


RoundT = TypeVar("RoundT", bound=HasRound)


def read_lines(path: Path, advice: str = ADVICE, last_bytes: int | None = None) -> list[str]:
    """Read the lines without newlines; with ``last_bytes`` only whole lines at the end."""
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
    """Read a log; a missing file has no records."""
    if not path.exists():
        return []
    return _parsed(path, read_lines(path), parse)


def read_rounds_after(
    path: Path, parse: Callable[[Any], RoundT], last_round: int, last_bytes: int
) -> list[RoundT]:
    """Read the records after a round from the end of a log, without reading earlier ones."""
    lines = read_lines(path, last_bytes=last_bytes) if path.exists() else []
    found: list[RoundT] = []
    for line in reversed(lines):
        (record,) = _parsed(path, [line], parse)
        if record.round <= last_round:
            break
        found.append(record)
    return found[::-1]


def keep_rounds(path: Path, parse: Callable[[Any], RoundT], last_round: int) -> list[RoundT]:
    """Drop the records after a round, because it will be repeated; return the others.

    Afterwards the file exists and ends with a whole line.
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


def append_entry(path: Path, entry: object, *, sync: bool = False) -> None:
    """Add a line to a log; with ``sync`` it is on the disk afterwards, even if the power fails."""
    with path.open("a", encoding="utf-8") as file:
        file.write(_line(entry))
        if sync:
            file.flush()
            os.fsync(file.fileno())


def _parsed(path: Path, lines: Sequence[str], parse: Callable[[Any], RecordT]) -> list[RecordT]:
    try:
        return [parse(json.loads(line)) for line in lines]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is damaged; {ADVICE}") from error


def _line(entry: object) -> str:
    return json.dumps(entry) + "\n"


@contextmanager
def held(path: Path, seconds: float = 0.0) -> Iterator[bool]:
    """Hold the file while the block runs; False if another one holds it after so many seconds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # The block may belong to a generator, which another thread may end.
    lock = FileLock(path, timeout=seconds, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()
