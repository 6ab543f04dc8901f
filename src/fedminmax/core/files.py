"""Files that are either there in full or not there: written beside, then renamed."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def written_beside(path: Path) -> Iterator[Path]:
    """Give a name to write under; what stands there after the block gets its final name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Two calls may work in one folder: each has its own file beside.
    beside = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        yield beside
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with written_beside(path) as beside:
        beside.write_text(text, encoding="utf-8")


def write_first_json(path: Path, content: object) -> None:
    """Write a JSON file unless it is there: of several calls at once, the first one wins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{os.getpid()}.partial")
    beside.write_text(_as_json(content), encoding="utf-8")
    try:
        with suppress(FileExistsError):
            os.link(beside, path)
    finally:
        beside.unlink()


def write_json(path: Path, content: object) -> None:
    """Write a JSON file atomically, indented, with a final newline."""
    write_text(path, _as_json(content))


def _as_json(content: object) -> str:
    return json.dumps(content, indent=2) + "\n"
