"""Real processes: the folder that a killed command leaves is removed, and nothing else is.

Real processes: a family is ended with all its members, and no other.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from fedminmax.network.flare.process_tree import (
    end,
    is_alive,
    run_watchdog,
    with_descendants,
    with_watchdog,
)
from tests.network.flare.sleeping_processes import PARENT, SECONDS, SLEEP, started

COMMAND = """
import sys, time
from pathlib import Path
from fedminmax.network.flare.process_tree import with_watchdog
with with_watchdog(Path(sys.argv[1])):
    print("watched", flush=True)
    time.sleep(600)
"""


def comes_true(question: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if question():
            return True
        time.sleep(0.05)
    return False


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "temporary"
    (path / "kits").mkdir(parents=True)
    (path / "kits" / "key").write_text("secret")
    return path


def test_a_killed_commands_folder_is_removed(folder: Path) -> None:
    with started(COMMAND, str(folder)) as command:
        assert command.stdout.readline() == b"watched\n"
        command.kill()
        assert command.wait(SECONDS) == -signal.SIGKILL
    assert comes_true(lambda: not folder.exists())
    assert folder.parent.exists()


def test_what_a_process_still_writes_at_its_end_is_removed_too(
    folder: Path, tmp_path: Path
) -> None:
    writing = subprocess.Popen(
        ["sh", "-c", 'for i in $(seq 20); do mkdir -p "$0/$i"; sleep 0.05; done', str(folder)]  # noqa: S607
    )
    (tmp_path / "said").touch()
    with (tmp_path / "said").open("rb") as nothing:
        while writing.poll() is None:
            run_watchdog(nothing.fileno(), folder)
        run_watchdog(nothing.fileno(), folder)
    assert not folder.exists()


def test_nothing_is_touched_when_the_block_ends_well(folder: Path) -> None:
    before = set(psutil.Process().children())
    with with_watchdog(folder):
        (watchdog,) = set(psutil.Process().children()) - before
    assert (folder / "kits" / "key").exists()
    assert not watchdog.is_running()


def test_a_block_that_raises_is_cleaned_up_after(folder: Path) -> None:
    def interrupted_work() -> None:
        with with_watchdog(folder):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted_work()
    assert not folder.exists()


def test_the_command_goes_on_without_its_guardian(folder: Path) -> None:
    before = set(psutil.Process().children())
    with with_watchdog(folder):
        (watchdog,) = set(psutil.Process().children()) - before
        os.kill(watchdog.pid, signal.SIGKILL)
        assert comes_true(lambda: not is_alive(watchdog))
    assert folder.exists()


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
