"""Processes that we start: they end with us, and with all that they started.

A process that was killed cleans up nothing, and its children would go on, connected and answering.
So every process that starts others holds the writing end of a pipe, which the system closes when
the process is gone, and its children wait at the other end (``lifeline``).

The folder of a command that was killed is removed by a small process of its own that outlives it.
The command says at its end, through a pipe, that all is well; a pipe that ends without that means
that the command could not clean up itself. Its server and sites have ended with it.
"""

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import psutil

SECONDS_TO_END = 10.0
POLL_SECONDS = 0.2
ENDED_WITH_PARENT = 9


def engine_command(module: str, arguments: Sequence[str]) -> list[str]:
    """Return the command that runs a module of the engine with its doors closed."""
    return [
        sys.executable,
        "-u",
        "-m",
        "fedminmax.network.flare.engine_process",
        module,
        *arguments,
    ]


@cache
def lifeline() -> int:
    """Return what a child is given as its standard input; it ends when this process does.

    The writing end is not inherited, and stays open for as long as this process lives.
    """
    reading, _ = os.pipe()
    return reading


def end_with_parent() -> None:
    """Let this process end, at once, when the one that gave it its standard input has ended."""
    threading.Thread(target=_wait, name="lifeline", daemon=True).start()


def _wait() -> None:
    while os.read(sys.__stdin__.fileno() if sys.__stdin__ else 0, 1):
        pass
    # Nothing is finished or said: whoever stopped the parent wants silence.
    os._exit(ENDED_WITH_PARENT)


def end(processes: Iterable[psutil.Process]) -> None:
    """End these processes and their descendants: terminate first, then kill."""
    alive = with_descendants(processes)
    for member in alive:
        _quietly(member, "terminate")
    alive = _alive_after(alive, SECONDS_TO_END)
    for member in alive:
        _quietly(member, "kill")
    _alive_after(alive, SECONDS_TO_END)


def with_descendants(processes: Iterable[psutil.Process]) -> frozenset[psutil.Process]:
    """Return the processes that still exist, with all their descendants."""
    # The id of a process that has ended may have been reused.
    family = {process for process in processes if process.is_running()}
    parents = {process: process.info["ppid"] for process in psutil.process_iter(["ppid"])}
    while True:
        numbers = {member.pid for member in family}
        more = {process for process, parent in parents.items() if parent in numbers} - family
        if not more:
            return frozenset(family)
        family |= more


def is_alive(process: psutil.Process) -> bool:
    """Return whether the process still runs; a zombie that was not reaped yet does not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _alive_after(processes: frozenset[psutil.Process], seconds: float) -> frozenset[psutil.Process]:
    """Wait for these processes to end, at most this long; return those still alive."""
    deadline = time.monotonic() + seconds
    while processes and time.monotonic() < deadline:
        _, waiting = psutil.wait_procs(processes, timeout=POLL_SECONDS)
        processes = frozenset(one for one in waiting if is_alive(one) or _is_our_child(one))
    return processes


def _is_our_child(process: psutil.Process) -> bool:
    """Return whether we must reap the process; its threads may outlive it."""
    try:
        return bool(process.ppid() == os.getpid())
    except psutil.NoSuchProcess:
        return False


def _quietly(process: psutil.Process, action: str) -> None:
    try:
        getattr(process, action)()
    except psutil.NoSuchProcess:
        return


WELL = b"well"
# Processes that are just ending may still write.
SECONDS_TO_REMOVE = 30.0
MAX_READ_BYTES = 4096


@contextmanager
def with_watchdog(folder: Path) -> Iterator[None]:
    """Watch a folder while the block runs; nothing happens if it ends normally.

    If it ends in an exception, or the whole process is killed, the watchdog removes the folder.
    """
    watchdog = subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-m", "fedminmax.network.flare.process_tree", str(folder)],
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
