"""Real processes: a family is ended with all its members, and no other."""

import signal

import psutil
import pytest

from fedminmax.network.flare.process_tree import end, is_alive, with_descendants
from tests.network.flare.sleeping_processes import PARENT, SLEEP, started

DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); {SLEEP}"
EXIT_CODE = 7
ENDS_BEFORE_ITS_THREAD = f"""
import ctypes, os, signal, threading, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def end_at_last():
    time.sleep(0.5)
    os._exit({EXIT_CODE})
threading.Thread(target=end_at_last).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_family_is_ended_and_no_other() -> None:
    with started(PARENT) as parent, started(PARENT) as other:
        child, stranger = (psutil.Process(int(one.stdout.readline())) for one in (parent, other))
        assert with_descendants([parent]) == {parent, child}
        end([parent])
        assert not is_alive(child)
        assert parent.poll() == -signal.SIGTERM
        assert is_alive(other)
        assert is_alive(stranger)
        end([other])


def test_a_child_whose_threads_end_after_it_is_waited_for() -> None:
    """The system calls it a zombie at once, and lets nobody reap it before its last thread ends.

    A Popen that nobody waited for complains when it is collected, whenever that is.
    """
    with started(ENDS_BEFORE_ITS_THREAD) as process:
        while is_alive(process):
            pass
        end([process])
        # Unlike poll(), this does not reap.
        assert process.returncode == EXIT_CODE


def test_who_does_not_listen_is_ended_by_force(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedminmax.network.flare.process_tree.SECONDS_TO_END", 1.0)
    with started(DEAF) as process:
        process.stdout.readline()
        end([process])
        assert process.poll() == -signal.SIGKILL
