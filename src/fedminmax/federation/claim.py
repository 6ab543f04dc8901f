"""One writer per run folder: a job that was lost may still be ending when the next one begins."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedminmax.core.errors import InputError
from fedminmax.core.lock_file import held

CLAIM_FILE = "claim"
SECONDS_TO_WAIT = 120.0


@contextmanager
def claimed(folder: Path, seconds: float = SECONDS_TO_WAIT) -> Iterator[None]:
    """Hold the folder while the block runs, or refuse it."""
    with held(folder / CLAIM_FILE, seconds) as ours:
        if not ours:
            raise InputError(
                f"another job writes to {folder}; stop it, or give this run another name"
            )
        yield
