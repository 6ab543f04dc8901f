"""Files that are written in full or not at all, and lock files.

A file is written under a temporary name in the same folder and then renamed, so readers see all of
it or none.

A lock file is held by one process at a time. When the process ends, the system lets go of it.
"""

import json
import os
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout


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
