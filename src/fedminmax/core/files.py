"""Files that are either there in full or not there: written beside, then renamed."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def written_beside(path: Path, kept_as: Path | None = None) -> Iterator[Path]:
    """Give a name to write under; what stands there after the block gets its final name.

    What had that name before is lost, or gets the name ``kept_as``.
    """
    with _name_beside(path) as beside:
        yield beside
        _sync(beside)
        if kept_as is not None:
            path.replace(kept_as)
        beside.replace(path)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    with written_beside(path) as beside:
        beside.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    write_bytes(path, text.encode())


def write_copy(source: Path, path: Path) -> None:
    """Copy a file's content atomically."""
    with written_beside(path) as beside:
        shutil.copyfile(source, beside)


def write_json(path: Path, content: object) -> None:
    """Write a JSON file atomically, indented, with a final newline."""
    write_text(path, _as_json(content))


def write_first_json(path: Path, content: object) -> None:
    """Write a JSON file unless it is there: of several calls at once, the first one wins."""
    with _name_beside(path) as beside:
        beside.write_text(_as_json(content), encoding="utf-8")
        _sync(beside)
        with suppress(FileExistsError):
            os.link(beside, path)


@contextmanager
def _name_beside(path: Path) -> Iterator[Path]:
    """Give a name beside a file; whatever happens, nothing is left under it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Two calls may work in one folder: each has its own file beside.
    beside = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        yield beside
    finally:
        beside.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Bring a file to the disk: a name must not outlive a power cut that its content does not."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _as_json(content: object) -> str:
    return json.dumps(content, indent=2) + "\n"
