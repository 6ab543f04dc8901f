"""Processes that we start: they end with us, and with all that they started.

A process that was killed cleans up nothing, and its children would go on, connected and answering.
So every process that starts others holds the writing end of a pipe, which the system closes when
the process is gone, and its children wait at the other end (``lifeline``).
"""

import os
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from functools import cache

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
