"""Files that are written in full or not at all, logs of JSON lines, and lock files.

A file is written under a temporary name in the same folder and then renamed, so readers see all of
it or none. A lock file is held by one process at a time; when it ends, the system lets go of it.

A log has one record per line, added while a run goes on. A last line without a line end was cut
off by a crash, or is still being written: it is not part of the log. A run that goes on from its
checkpoint first drops the records after it, because that work is done again.
"""

import json
import os
import shutil
import socket
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

from filelock import FileLock, Timeout

from fedminmax.core.errors import InputError


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


def write_secret(path: Path, content: bytes) -> None:
    """Write a file that nobody else may read, unless it exists: what was first stays."""
    with _temporary_name(path) as temporary:
        # One of an earlier process with this number.
        temporary.unlink(missing_ok=True)
        number = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(number, "wb") as file:
            file.write(content)
        _sync(temporary)
        with suppress(FileExistsError):
            os.link(temporary, path)


@contextmanager
def _temporary_name(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder; the file is removed in any case."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Several processes may write to one folder; in containers they often have the same number.
    temporary = path.with_name(f"{path.name}.{socket.gethostname()}-{os.getpid()}.partial")
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


@contextmanager
def held(path: Path, seconds: float = 0.0) -> Iterator[bool]:
    """Hold the file while the block runs; False if another one holds it after these seconds."""
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


def is_held(path: Path) -> bool | None:
    """Return whether another process holds the file; None if that cannot be seen here.

    Nothing is written. The check takes a shared lock for an instant, so a process that wants the
    lock should wait briefly (``seconds`` of ``held``).
    """
    if sys.platform == "win32":
        return None
    import fcntl

    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return False


ADVICE = "remove it, and the run goes on from its checkpoint"


class LogRecord(Protocol):
    """What a line holds: it belongs to a round, and knows its own form in JSON."""

    @property
    def round(self) -> int:
        """The round's number, from 1."""
        ...

    @classmethod
    def from_json(cls, entry: Any) -> Self:
        """Read a record; whatever is wrong with the entry may raise any of Python's errors."""
        ...

    def as_json(self) -> dict[str, Any]:
        """Return the record as a line shows it."""
        ...


RecordT = TypeVar("RecordT", bound=LogRecord)


@dataclass(frozen=True)
class LogSoFar(Generic[RecordT]):
    """What was read of a log: its records, the place behind them, and the last whole line."""

    records: tuple[RecordT, ...] = ()
    end: int = 0
    last_line: bytes = b""


@dataclass(frozen=True)
class JsonLog(Generic[RecordT]):
    """A log with one kind of record; a file that is not there has no records."""

    path: Path
    kind: type[RecordT]

    def add(self, record: RecordT, *, sync: bool = False) -> None:
        """Append a record; with ``sync`` it is on the disk afterwards, even if the power fails."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(_line(record))
            if sync:
                file.flush()
                os.fsync(file.fileno())

    def write(self, records: Iterable[RecordT]) -> None:
        """Write a whole log at once."""
        write_text(self.path, "".join(map(_line, records)))

    def read(self) -> list[RecordT]:
        """Return all records."""
        return self._parse(self._lines())

    def read_after(self, last_round: int, last_bytes: int) -> list[RecordT]:
        """Return what comes after a round, from the last bytes alone: a log may be long."""
        found: list[RecordT] = []
        for line in reversed(self._lines(last_bytes)):
            (record,) = self._parse([line])
            if record.round <= last_round:
                break
            found.append(record)
        return found[::-1]

    def read_on(self, start: int) -> tuple[list[RecordT], int]:
        """Return the records from a place in the file on, and the place behind them.

        Only for a caller who alone may write: what a crash cut off is removed.
        """
        if not self.path.exists():
            return [], start
        with self.path.open("r+b") as file:
            file.seek(start)
            *lines, rest = file.read().split(b"\n")
            if rest:
                file.truncate(file.seek(-len(rest), os.SEEK_END))
            end = file.seek(0, os.SEEK_END)
        return self._parse(_decoded(self.path, lines)), end

    def read_more(self, before: "LogSoFar[RecordT]") -> "LogSoFar[RecordT]":
        """Return all records of a log that another process writes; ``before`` is the last look.

        Only what is new is read, unless the last line is no longer where it was: the log was
        written anew.
        """
        try:
            with self.path.open("rb") as file:
                file.seek(before.end - len(before.last_line))
                content = file.read()
                if content.startswith(before.last_line):
                    content = content[len(before.last_line) :]
                else:
                    before = LogSoFar()
                    file.seek(0)
                    content = file.read()
        except FileNotFoundError:
            return LogSoFar()
        *lines, rest = content.split(b"\n")
        if not lines:
            return before
        found = self._parse(_decoded(self.path, lines))
        end = before.end + len(content) - len(rest)
        return LogSoFar((*before.records, *found), end, lines[-1] + b"\n")

    def drop_after(self, last_round: int) -> list[RecordT]:
        """Remove the records after a round, and what a crash cut off; return what is left."""
        lines = self._lines()
        kept = [
            (line, record)
            for line, record in zip(lines, self._parse(lines), strict=True)
            if record.round <= last_round
        ]
        if self.path.exists():
            write_text(self.path, "".join(f"{line}\n" for line, _ in kept))
        return [record for _, record in kept]

    def _lines(self, last_bytes: int | None = None) -> list[str]:
        return read_lines(self.path, last_bytes=last_bytes) if self.path.exists() else []

    def _parse(self, lines: Sequence[str]) -> list[RecordT]:
        try:
            return [self.kind.from_json(json.loads(line)) for line in lines]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{self.path} is damaged; {ADVICE}") from error


def read_lines(path: Path, advice: str = ADVICE, last_bytes: int | None = None) -> list[str]:
    """Read the lines without their ends; with ``last_bytes`` only those wholly within the end."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        start = 0 if last_bytes is None else max(0, size - last_bytes)
        file.seek(start)
        *lines, _ = file.read().split(b"\n")
    return _decoded(path, lines[1:] if start else lines, advice)


def _decoded(path: Path, lines: Sequence[bytes], advice: str = ADVICE) -> list[str]:
    try:
        return [line.decode("utf-8") for line in lines]
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is damaged: it is not text; {advice}") from error


def with_tuples(entry: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return an entry with tuples for JSON's lists."""
    return entry | {name: tuple(entry[name]) for name in names}


def _line(record: LogRecord) -> str:
    return json.dumps(record.as_json()) + "\n"
