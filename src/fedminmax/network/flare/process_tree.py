"""Processes and all that they started: found by their parents, ended together."""

import os
import time
from collections.abc import Iterable

import psutil

SECONDS_TO_END = 10.0
POLL_SECONDS = 0.2


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
