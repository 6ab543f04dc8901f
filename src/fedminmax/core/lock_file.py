"""A file that one process holds at a time; the system lets go of it when the process ends."""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

SECONDS_BETWEEN_TRIES = 0.5


@contextmanager
def held(path: Path, seconds: float = 0.0) -> Iterator[bool]:
    """Hold the file while the block runs; False if another one holds it after so many seconds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + seconds
    with path.open("w") as file:
        ours = _locked(file)
        while not ours and time.monotonic() < deadline:
            time.sleep(SECONDS_BETWEEN_TRIES)
            ours = _locked(file)
        yield ours


def _locked(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
