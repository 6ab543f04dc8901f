"""The server's disk: space reserved for the end of a run, and one writer per run folder.

A run that cannot save stops. Its outcome must still be written, by us and by NVIDIA FLARE, whose
own files (logs, results, the state of each job) are on the same disk. So a run reserves some space,
and frees it before it writes its outcome. The messages about a full disk are here, too.

The folder is locked because a job that was lost may still be ending when the next one begins.
Records are files of JSON: a damaged one is said to be so, in one line.
"""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from fedminmax.core.errors import InputError
from fedminmax.core.files import held, write_text

RecordT = TypeVar("RecordT")
RESERVE_FILE = "reserve"
RESERVE_BYTES = 4 * 2**20
# Space for what the engine writes at the end of a job besides the results: logs and job state.
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
        # Not zeros: some file systems do not allocate space for them.
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
    """Return the message for a coordinator if the server could not write a file."""
    reason = error.strerror or str(error)[:MAX_REASON]
    if error.errno in DISK_FULL:
        return disk_is_full(reason)
    return (
        f"the server cannot save ({reason}); fix its folder there and resume the run: everything "
        "saved is kept, and it continues after its last saved round"
    )


def disk_is_full(reason: str) -> str:
    """Return the message for a coordinator if the disk is full."""
    return (
        f"the server cannot save: its disk is full ({reason}); free space there and resume the "
        "run: everything saved is kept, and it continues after its last saved round"
    )


def find_disk_full(message: str) -> str | None:
    """Return the system's text for a full disk, if the message contains it."""
    return next((os.strerror(code) for code in DISK_FULL if os.strerror(code) in message), None)


@contextmanager
def run_lock(folder: Path, seconds: float = SECONDS_TO_WAIT) -> Iterator[None]:
    """Hold the folder while the block runs, or refuse it."""
    with held(folder / CLAIM_FILE, seconds) as ours:
        if not ours:
            raise InputError(
                f"another job writes to {folder}; stop it, or give this run another name"
            )
        yield


def read_record(path: Path, kind: type[RecordT], advice: str) -> RecordT | None:
    """Read a record; None if there is no such file.

    Raises:
        InputError: the file is damaged; ``advice`` says what to do.
    """
    if not path.exists():
        return None
    try:
        return TypeAdapter(kind).validate_json(path.read_bytes())
    except ValidationError as error:
        raise InputError(f"{path} is damaged; {advice}") from error


def write_record(path: Path, record: object) -> None:
    """Write a record, in full or not at all."""
    content = TypeAdapter(type(record)).dump_json(record, indent=2).decode()
    write_text(path, content + "\n")
