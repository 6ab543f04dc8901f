"""Streams of the engine: one thread for all that is due later, and no more messages than needed."""

import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from nvflare.fuel.f3.cellnet.cell import Adapter
from nvflare.fuel.f3.comm_config import CommConfigurator
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming.blob_streamer import BlobStream
from nvflare.fuel.f3.streaming.byte_receiver import RxTask
from nvflare.fuel.f3.streaming.byte_streamer import ByteStreamer, TxTask
from nvflare.fuel.f3.streaming.stream_const import STREAM_DATA_TOPIC, StreamHeaderKey
from nvflare.fuel.f3.streaming.stream_types import StreamFuture
from nvflare.fuel.utils.buffer_list import ConsumableBufferList

from fedminmax.network.flare.patches import SPEED, apply
from fedminmax.network.flare.streams import DelayedCalls

MESSAGES = 500
SECONDS = 10.0


@pytest.fixture(autouse=True)
def _lightened(monkeypatch: pytest.MonkeyPatch) -> None:
    for patch in SPEED:
        monkeypatch.setattr(patch.owner, patch.name, getattr(patch.owner, patch.name))
    # Sessions of other tests in this process leave messages that are remembered for a while.
    monkeypatch.setattr(RxTask, "rx_task_map", {})
    apply(SPEED)


class Wire:
    """What a cell of the engine would send, as a list."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Message]] = []
        self.second = threading.Event()

    def fire_and_forget(
        self, _channel: str, topic: str, _target: str, message: Message, **_: object
    ) -> dict[str, str]:
        self.sent.append((topic, message))
        if len(self.sent) == 2:
            self.second.set()
        return {}


def begun(wire: Wire, size: int, *, reliable: bool) -> TxTask:
    stream = BlobStream(bytes(size), {})
    rest = {"reliable": reliable, "secure": False, "optional": False}
    task = TxTask(wire, 2**20, "c", "t", "north", {}, stream, **rest)
    ByteStreamer.tx_task_map[task.sid] = task
    return task


def test_a_thousand_messages_do_not_need_a_thousand_threads() -> None:
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


def test_sending_replies_wakes_no_thread() -> None:
    wire, before = Wire(), threading.active_count()
    for _ in range(MESSAGES):
        task = begun(wire, 100, reliable=True)
        task.send_loop()
        answer = {StreamHeaderKey.SEQUENCE: 0, StreamHeaderKey.OFFSET: 100}
        ByteStreamer._ack_handler(Message({StreamHeaderKey.STREAM_ID: task.sid, **answer}))
        assert task.stopped
    assert len(wire.sent) == MESSAGES
    assert threading.active_count() <= before + 1


def test_a_reply_that_nobody_confirms_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CommConfigurator, "get_streaming_retry_wait", lambda *_: 0.02)
    wire = Wire()
    task = begun(wire, 100, reliable=True)
    task.send_loop()
    assert wire.second.wait(SECONDS)
    assert {topic for topic, _ in wire.sent} == {STREAM_DATA_TOPIC}
    assert wire.sent[0][1].payload == wire.sent[1][1].payload == bytes(100)
    task.cancel()


@pytest.mark.parametrize("size", [100, 2**17, 2**17 + 1, 2**20, 3 * 2**20 + 5])
@pytest.mark.parametrize("reliable", [True, False])
def test_messages_of_all_sizes_arrive_whole(size: int, *, reliable: bool) -> None:
    out, back = Wire(), Wire()
    content = bytes(number % 251 for number in range(size))
    task = begun(out, size, reliable=reliable)
    task.stream = BlobStream(content, {})
    assert len(task.buffer) <= max(2**17, min(size, 2**20))
    task.send_loop()
    received = RxTask(task.sid, "north", back, reliable)
    for _, message in out.sent:
        received.process_chunk(message)
    read = b"".join(iter(lambda: bytes(received.read(2**20) or b""), b""))
    assert read == content
    # One frame of a megabyte each, and a confirmation only where the sender waits for it.
    assert len(out.sent) == -(-size // 2**20)
    assert bool(back.sent) == reliable
    task.cancel()
    received._remove_task()


def test_a_message_that_comes_is_not_written_out_for_a_log_that_nobody_keeps() -> None:
    """The engine makes the text of each message before it knows whether anybody logs it."""

    class Unwritable(bytes):
        def __repr__(self) -> str:
            pytest.fail("a message was written out")

    arrived = StreamFuture(1)
    arrived.headers = {}
    arrived.set_result(ConsumableBufferList([Unwritable(300), Unwritable(5)]))
    requests: list[Message] = []
    cell = SimpleNamespace(
        decode_pass_through_channels=(),
        decode_pass_through_topics=(),
        get_fobs_context=lambda **_: {},
    )
    Adapter(requests.append, None, cell).call(arrived)
    assert [str(request.payload) for request in requests] == ["305 bytes"]


def test_calls_are_made_in_the_order_of_their_times_unless_cancelled() -> None:
    calls, made, done = DelayedCalls(), [], threading.Event()
    calls.add(0.2, done.set)
    calls.add(0.1, lambda: made.append("second"))
    calls.add(0.05, lambda: made.append("never")).cancel()
    calls.add(0.0, lambda: made.append("first"))
    assert done.wait(SECONDS)
    assert made == ["first", "second"]


UNDER_A_LIMIT = """
import os, resource
import psutil
from nvflare.fuel.f3.streaming.byte_receiver import RxTask
from fedminmax.network.flare.patches import SPEED, apply

def receive(first):
    for number in range(first, first + 1000):
        task = RxTask(number, "north", None, reliable=True)
        RxTask.rx_task_map[task.origin, task.sid] = task
        task._schedule_remove_task()

engines_own = RxTask._schedule_remove_task
apply(SPEED)
if os.getuid() == 0:
    # The limit does not hold for root.
    os.setuid(54_321)
own = [process for process in psutil.process_iter(["uids"]) if process.uids().real == os.getuid()]
limit = sum(process.num_threads() for process in own) + 100
resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))
receive(0)
print(len(RxTask.rx_task_map), "messages", flush=True)
RxTask._schedule_remove_task = engines_own
try:
    receive(1000)
except RuntimeError as error:
    print(error, flush=True)
os._exit(0)
"""


def test_the_systems_limit_of_threads_is_not_reached() -> None:
    """A real limit, of the system: what the engine does by itself does not keep to it."""
    command = [sys.executable, "-c", UNDER_A_LIMIT]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    assert said.splitlines() == ["1000 messages", "can't start new thread"]
