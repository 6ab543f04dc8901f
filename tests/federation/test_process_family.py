"""Real processes: a family is ended with all its members, and no other."""

import signal

import psutil
import pytest

from fedminmax.federation.process_family import end, lives, with_descendants
from tests.federation.sleeping_processes import PARENT, started


def test_a_family_is_ended_and_no_other() -> None:
    with started(PARENT) as parent, started(PARENT) as other:
        child, stranger = (psutil.Process(int(one.stdout.readline())) for one in (parent, other))
        assert with_descendants([parent]) == {parent, child}
        end([parent])
        assert not lives(child)
        assert parent.poll() == -signal.SIGTERM
        assert lives(other)
        assert lives(stranger)
        end([other])


def test_who_does_not_listen_is_ended_by_force(monkeypatch: pytest.MonkeyPatch) -> None:
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True)"
    monkeypatch.setattr("fedminmax.federation.process_family.SECONDS_TO_END", 1.0)
    with started(f"{deaf}; time.sleep(600)") as process:
        process.stdout.readline()
        end([process])
        assert process.poll() == -signal.SIGKILL
