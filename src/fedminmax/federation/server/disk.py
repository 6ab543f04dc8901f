"""The server's disk: room that is kept for the end of a run, and one writer per run folder.

A run that cannot save stops. How it ended must still be written down, by us and by NVIDIA FLARE,
whose own files (logs, results, the state of each job) are on the same disk. So a run keeps some
room while it goes on, and frees it before it writes how it ended. The messages about a full disk
are here, too.

The folder is locked because a job that was lost may still be ending when the next one begins.
"""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedminmax.core.errors import InputError
from fedminmax.core.files import held

RESERVE_FILE = "reserve"
RESERVE_BYTES = 4 * 2**20
# What the engine writes when a job ends, besides the results: its logs, and the job's state.
ENGINE_BYTES = 2**20
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
MAX_REASON = 200
CLAIM_FILE = "claim"
SECONDS_TO_WAIT = 120.0


@contextmanager
def reserve_space(folder: Path) -> Iterator[None]:
    """Hold some room on the folder's disk while the block runs; refuse to begin without it."""
    path = folder / RESERVE_FILE
    try:
        # Of zeros some disks would keep nothing but their number.
        path.write_bytes(os.urandom(RESERVE_BYTES))
        yield
    finally:
        path.unlink(missing_ok=True)


def check_space_for_copy(folder: Path) -> None:
    """Refuse to go on if the folder's disk has no room for all of it once more."""
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if shutil.disk_usage(folder).free < size + ENGINE_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def cannot_save(error: OSError) -> str:
    """Return what a coordinator is told of a server that could not write a file."""
    reason = error.strerror or str(error)[:MAX_REASON]
    if error.errno in DISK_FULL:
        return disk_is_full(reason)
    return (
        f"the server cannot save ({reason}); mend its folder there and resume the run: everything "
        "saved is kept, and it goes on after its last saved round"
    )


def disk_is_full(reason: str) -> str:
    """Return what a coordinator is told of a disk without room."""
    return (
        f"the server cannot save: its disk is full ({reason}); make room there and resume the run: "
        "everything saved is kept, and it goes on after its last saved round"
    )


def find_disk_full(words: str) -> str | None:
    """Return the system's words for a disk without room, if these words have them."""
    return next((os.strerror(code) for code in DISK_FULL if os.strerror(code) in words), None)


@contextmanager
def run_lock(folder: Path, seconds: float = SECONDS_TO_WAIT) -> Iterator[None]:
    """Hold the folder while the block runs, or refuse it."""
    with held(folder / CLAIM_FILE, seconds) as ours:
        if not ours:
            raise InputError(
                f"another job writes to {folder}; stop it, or give this run another name"
            )
        yield
