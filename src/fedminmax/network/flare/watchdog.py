"""Removes the folder of a command that was killed: a small process of its own that outlives it.

The command says at its end, through a pipe, that all is well. A pipe that ends without that means
that the command could not clean up itself. Its server and sites have
ended with it (``process_tree``).
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

WELL = b"well"
# Processes that are just ending may still write.
SECONDS_TO_REMOVE = 30.0
POLL_SECONDS = 0.2
MAX_READ_BYTES = 4096


@contextmanager
def with_watchdog(folder: Path) -> Iterator[None]:
    """Watch a folder while the block runs; nothing happens if it ends normally.

    If it ends in an exception, or the whole process is killed, the watchdog removes the folder.
    """
    watchdog = subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-m", "fedminmax.network.flare.watchdog", str(folder)],
        # Unbuffered: what is sent is sent at once, whatever happens next.
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # A signal for the command, or for all of its terminal, is not for its watchdog.
        start_new_session=True,
    )
    pipe = watchdog.stdin
    if pipe is None:
        raise RuntimeError("a process that was given a pipe has none")
    try:
        yield
        # If the watchdog was killed, the command ends without it.
        with suppress(BrokenPipeError):
            pipe.write(WELL)
    finally:
        pipe.close()
        watchdog.wait()


def run_watchdog(pipe: int, folder: Path) -> None:
    """Wait until the pipe ends; remove the folder unless all was well."""
    said = b""
    while content := os.read(pipe, MAX_READ_BYTES):
        said += content
    if said == WELL:
        return
    until = time.monotonic() + SECONDS_TO_REMOVE
    while folder.exists() and time.monotonic() < until:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    run_watchdog(sys.stdin.fileno(), Path(sys.argv[1]))
