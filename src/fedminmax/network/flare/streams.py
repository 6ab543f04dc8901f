"""Less work for each message of NVIDIA FLARE, which sends every one as a stream of its own.

For each message that it received the engine starts a thread, to forget the message a minute later:
thousands of threads in a run of quick rounds. For each reply that it sends it wakes a thread, and
others with it, five times, to look whether the reply has to be sent again. To each message that
nobody waits to be confirmed it sends a confirmation, and each message has a buffer of a megabyte,
whatever its size. It makes the text of each message that comes for a log, four letters for a byte,
and only then looks whether anybody keeps that log. With ten sites and a small model all this is
most of what a round takes, and for three megabytes the text alone is a quarter of a site's time.
Here one thread does all that is due later, and looks at a reply only when it is time to send it
again; nothing is forgotten sooner, and what has to be sent again is.
"""

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

from fedminmax.network.flare.engine import (
    ConsumableBufferList,
    RxTask,
    TxTask,
    byte_streamer,
)

# With smaller ones the engine warns of the number of pieces that could be under way.
MIN_CHUNK = 2**17


class DelayedCall:
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


class DelayedCalls:
    """Makes calls at their times, all in one thread, which starts with the first of them."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, DelayedCall]] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def add(self, seconds: float, function: Callable[[], object]) -> DelayedCall:
        """Call this after this many seconds."""
        call = DelayedCall(function)
        with self._changed:
            heapq.heappush(self._due, (time.monotonic() + seconds, next(self._numbers), call))
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="later", daemon=True)
                self._thread.start()
            if self._due[0][2] is call:
                self._changed.notify()
        return call

    def _work(self) -> None:
        while True:
            self._next().make()

    def _next(self) -> DelayedCall:
        """Wait for the time of the next call."""
        with self._changed:
            while True:
                wait = self._due[0][0] - time.monotonic() if self._due else None
                if wait is not None and wait <= 0:
                    return heapq.heappop(self._due)[2]
                self._changed.wait(wait)


class Retries:
    """Looks at each message when it would have to be sent again, and not before.

    Args:
        calls: where looks wait for their time.
        engine: the engine's own, which knows of messages before this, and when to stop.
    """

    def __init__(self, calls: DelayedCalls, engine: Any) -> None:
        self._calls = calls
        self._engine = engine
        self._lock = threading.Lock()
        self._looks: dict[TxTask, DelayedCall] = {}

    def register(self, task: TxTask) -> None:
        """Begin to look after a message."""
        self._look_after(task.retry_wait, task)

    def unregister(self, task: TxTask) -> None:
        """Stop: it has arrived, or was given up."""
        with self._lock:
            look = self._looks.pop(task, None)
        if look is None:
            self._engine.unregister(task)
        else:
            look.cancel()

    def wakeup(self) -> None:
        """Change nothing: a message that was just sent is not due."""

    def _look_after(self, seconds: float, task: TxTask) -> None:
        with self._lock:
            if not (self._engine.stopped or task.stopped):
                self._looks[task] = self._calls.add(seconds, lambda: self._begin_look(task))

    def _begin_look(self, task: TxTask) -> None:
        # Sending again may take its time, and others are due.
        self._engine.retry_task_pool.submit(self._look, task)

    def _look(self, task: TxTask) -> None:
        wait = task.retry_task()
        self._look_after(task.retry_wait if wait is None else wait, task)


CALLS = DelayedCalls()
RETRIES = Retries(CALLS, byte_streamer.reliable_retry_scheduler)
_engine_begin = TxTask.__init__
_engine_ack = RxTask._send_ack


def size_alone(pieces: ConsumableBufferList) -> str:
    """Return how large a message is; the engine would write out all its bytes for a log."""
    return f"{sum(map(len, pieces))} bytes"


def forget_later(task: RxTask, ttl: float | None = None) -> None:
    """Do what the engine's own does, but for the thread."""
    with task.stop_lock:
        if task.cleanup_timer is None:
            seconds = task.completed_task_ttl if ttl is None else ttl
            task.cleanup_timer = CALLS.add(seconds, task._remove_task)


def confirm_if_needed(task: RxTask, offset: int, seq: int) -> None:
    """Confirm, unless all has come and the sender does not wait to hear of it."""
    if task.reliable or not task.completed:
        _engine_ack(task, offset, seq)


def begin_with_fitting_buffer(
    task: TxTask,
    cell: Any,
    chunk_size: int,
    channel: str,
    topic: str,
    target: str,
    headers: Any,
    stream: Any,
    *rest: Any,
    **named: Any,
) -> None:
    """Do what the engine's own does, with a buffer that is not larger than a short message needs.

    A size of 0 may be one that is not known.
    """
    size = stream.get_size()
    fitting = min(chunk_size, max(size, MIN_CHUNK)) if size > 0 else chunk_size
    _engine_begin(task, cell, fitting, channel, topic, target, headers, stream, *rest, **named)
