"""Real processes: a family is ended with all its members, and no other."""

import signal

import psutil
import pytest

from fedminmax.federation import process_family
from fedminmax.federation.process_family import end, lives, with_descendants
from tests.federation.sleeping_processes import PARENT, SLEEP, started

DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); {SLEEP}"


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


def test_a_child_that_ends_just_after_it_was_waited_for_is_reaped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody else would, and its Popen would complain when it is collected, whenever that is."""

    def ends_now(process: psutil.Process) -> bool:
        process.kill()
        while lives(process):
            pass
        return False

    monkeypatch.setattr(process_family, "lives", ends_now)
    monkeypatch.setattr(process_family, "SECONDS_BETWEEN_LOOKS", 0.01)
    with started(DEAF) as process:
        process.stdout.readline()
        end([process])
        # Unlike poll(), this does not reap.
        assert process.returncode == -signal.SIGKILL


def test_who_does_not_listen_is_ended_by_force(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedminmax.federation.process_family.SECONDS_TO_END", 1.0)
    with started(DEAF) as process:
        process.stdout.readline()
        end([process])
        assert process.poll() == -signal.SIGKILL
