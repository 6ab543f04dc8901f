"""One thread for all that NVIDIA FLARE cleans up later, instead of one for each.

The engine remembers every message that it received for about a minute, in case that its sender did
not hear of it, and starts a thread for each to forget it again: thousands of threads in a run of
quick rounds.
"""

import heapq
import itertools
import threading
import time
from collections.abc import Callable

from nvflare.fuel.f3.streaming.byte_receiver import RxTask


class LaterCall:
    """A call that is still to come."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._function: Callable[[], object] | None = function

    def cancel(self) -> None:
        """Do not make it."""
        self._function = None

    def make(self) -> None:
        """Make it, unless it was cancelled."""
        function = self._function
        if function is not None:
            function()


class LaterCalls:
    """Makes calls at their times, all in one thread, which starts with the first of them."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, LaterCall]] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def add(self, seconds: float, function: Callable[[], object]) -> LaterCall:
        """Call this after so many seconds."""
        call = LaterCall(function)
        with self._changed:
            heapq.heappush(self._due, (time.monotonic() + seconds, next(self._numbers), call))
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="cleanup", daemon=True)
                self._thread.start()
            self._changed.notify()
        return call

    def _work(self) -> None:
        while True:
            self._next().make()

    def _next(self) -> LaterCall:
        """Wait for the time of the next call."""
        with self._changed:
            while True:
                wait = self._due[0][0] - time.monotonic() if self._due else None
                if wait is not None and wait <= 0:
                    return heapq.heappop(self._due)[2]
                self._changed.wait(wait)


CALLS = LaterCalls()


def share_cleanup_thread() -> None:
    """Let the engine use one thread in this process from now on."""
    RxTask._schedule_remove_task = _schedule_remove_task


def _schedule_remove_task(task: RxTask, ttl: float | None = None) -> None:
    """Do what the engine's own does, but for the thread."""
    with task.stop_lock:
        if task.cleanup_timer is None:
            seconds = task.completed_task_ttl if ttl is None else ttl
            task.cleanup_timer = CALLS.add(seconds, task._remove_task)
