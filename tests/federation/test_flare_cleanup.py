"""One thread forgets all messages, however many there were."""

import threading
import time

import pytest
from nvflare.fuel.f3.streaming.byte_receiver import RxTask

from fedminmax.federation.flare_cleanup import LaterCalls, share_cleanup_thread

MESSAGES = 500
SECONDS = 10.0


def test_a_thousand_messages_do_not_need_a_thousand_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RxTask, "_schedule_remove_task", RxTask._schedule_remove_task)
    share_cleanup_thread()
    before = threading.active_count()
    received = [RxTask(number, "north", None, reliable=True) for number in range(MESSAGES)]
    for task in received:
        RxTask.rx_task_map[task.origin, task.sid] = task
        # All but the first are remembered for a while, as the engine does.
        task._schedule_remove_task(0.0 if task.sid == 0 else None)
        task._schedule_remove_task()
    assert threading.active_count() <= before + 1
    deadline = time.monotonic() + SECONDS
    while ("north", 0) in RxTask.rx_task_map and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(RxTask.rx_task_map) == MESSAGES - 1
    for task in received:
        task._remove_task()
    assert not RxTask.rx_task_map


def test_calls_are_made_in_the_order_of_their_times_unless_cancelled() -> None:
    calls, made, done = LaterCalls(), [], threading.Event()
    calls.add(0.2, done.set)
    calls.add(0.1, lambda: made.append("second"))
    calls.add(0.05, lambda: made.append("never")).cancel()
    calls.add(0.0, lambda: made.append("first"))
    assert done.wait(SECONDS)
    assert made == ["first", "second"]
