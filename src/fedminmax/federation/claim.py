"""One writer per run folder: a job that was lost may still be ending when the next one begins."""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedminmax.core.errors import InputError

CLAIM_FILE = "claim"
SECONDS_TO_WAIT = 120.0
SECONDS_BETWEEN_TRIES = 0.5


@contextmanager
def claimed(folder: Path, seconds: float = SECONDS_TO_WAIT) -> Iterator[None]:
    """Hold the folder while the block runs; the system lets go of it when the process ends."""
    folder.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + seconds
    with (folder / CLAIM_FILE).open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise InputError(
                        f"another job writes to {folder}; stop it, or give this run another name"
                    ) from error
                time.sleep(SECONDS_BETWEEN_TRIES)
        yield
