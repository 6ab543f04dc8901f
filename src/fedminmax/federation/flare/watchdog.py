"""Cleans up after a command that was killed: a small process of its own that outlives it.

The command sends it, line by line through a pipe, the processes it started, and finally a disarm
message. A pipe that ends without it means that the command could not clean up itself.
"""

import os
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from fedminmax.federation.flare.process_tree import end, with_descendants

WELL = b"well"
POLL_SECONDS = 1.0
# The system reports start times only to some hundredths of a second.
CREATE_TIME_TOLERANCE = 1.0
MAX_READ_BYTES = 4096


class WatchdogClient:
    """The command's end of the pipe."""

    def __init__(self, watchdog: psutil.Popen) -> None:
        self._watchdog = watchdog

    def watch(self, process: psutil.Process) -> None:
        """Let the watchdog end this process, and all that it starts, if the command is killed."""
        self._send(f"{process.pid} {process.create_time()!r}".encode())

    def disarm(self) -> None:
        """Let the watchdog go without touching anything."""
        self._send(WELL)

    def _send(self, line: bytes) -> None:
        # If the watchdog was killed, the command continues without it.
        with suppress(BrokenPipeError):
            self._watchdog.stdin.write(line + b"\n")


@contextmanager
def with_watchdog(folder: Path) -> Iterator[WatchdogClient]:
    """Watch processes and a folder while the block runs; nothing happens if it ends normally.

    If it ends in an exception, or the whole process is killed, the watchdog ends the watched
    processes that are still alive and then removes the folder.
    """
    watchdog = psutil.Popen(
        [sys.executable, "-m", "fedminmax.federation.flare.watchdog", str(folder)],
        # Unbuffered: every line is sent at once, whatever happens next.
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # A signal for the command, or for all of its terminal, is not for its watchdog.
        start_new_session=True,
    )
    try:
        client = WatchdogClient(watchdog)
        yield client
        client.disarm()
    finally:
        watchdog.stdin.close()
        watchdog.wait()


def run_watchdog(pipe: int, folder: Path) -> None:
    """Watch until the pipe ends; clean up unless it was disarmed."""
    family = _left_behind(pipe)
    if family is not None:
        end(family)
        shutil.rmtree(folder, ignore_errors=True)


def _left_behind(pipe: int) -> frozenset[psutil.Process] | None:
    """Return all processes seen that are still alive; None if the watchdog was disarmed.

    Processes are remembered, because children of a dead parent get another parent.
    """
    family: frozenset[psutil.Process] = frozenset()
    rest = b""
    while True:
        readable, _, _ = select.select([pipe], [], [], POLL_SECONDS)
        if readable:
            content = os.read(pipe, MAX_READ_BYTES)
            if not content:
                return family
            *lines, rest = (rest + content).split(b"\n")
            if WELL in lines:
                return None
            family |= {process for line in lines for process in _found(line)}
        family = with_descendants(family)


def _found(line: bytes) -> list[psutil.Process]:
    """Return the process named in a line, unless it has ended and its id was reused."""
    number, born = line.split()
    try:
        process = psutil.Process(int(number))
    except psutil.NoSuchProcess:
        return []
    return [process] if abs(process.create_time() - float(born)) < CREATE_TIME_TOLERANCE else []


if __name__ == "__main__":
    run_watchdog(sys.stdin.fileno(), Path(sys.argv[1]))
