"""Real processes: what a killed command leaves is ended and removed, and nothing else."""

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from fedminmax.federation.flare.process_tree import is_alive
from fedminmax.federation.flare.watchdog import run_watchdog, with_watchdog
from tests.federation.flare.sleeping_processes import PARENT, SECONDS, SLEEP, started

# A command that starts a parent under guard and tells both numbers.
COMMAND = f"""
import subprocess, sys, time
from pathlib import Path
import psutil
from fedminmax.federation.flare.watchdog import with_watchdog
with with_watchdog(Path(sys.argv[1])) as guard:
    process = psutil.Popen(
        [sys.executable, "-c", {PARENT!r}], stdout=subprocess.PIPE, start_new_session=True
    )
    guard.watch(process)
    print(process.pid, int(process.stdout.readline()), flush=True)
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


@pytest.fixture
def sleeper() -> Iterator[psutil.Popen]:
    process = started(SLEEP)
    yield process
    process.kill()
    process.communicate()


def test_a_killed_commands_processes_are_ended_and_its_folder_removed(
    folder: Path, sleeper: psutil.Popen
) -> None:
    with started(COMMAND, str(folder)) as command:
        processes = [psutil.Process(int(word)) for word in command.stdout.readline().split()]
        assert len(processes) == 2
        command.kill()
        assert command.wait(SECONDS) == -signal.SIGKILL
    assert comes_true(lambda: not folder.exists())
    assert not any(map(is_alive, processes))
    assert is_alive(sleeper)


def test_the_child_of_a_parent_that_died_before_is_ended_too(folder: Path) -> None:
    with started(COMMAND, str(folder)) as command:
        parent, child = (psutil.Process(int(word)) for word in command.stdout.readline().split())
        # The watchdog has looked at least once; then the child loses its parent.
        time.sleep(3.0)
        parent.kill()
        assert comes_true(lambda: child.ppid() != parent.pid)
        assert is_alive(child)
        command.kill()
        command.wait(SECONDS)
    assert comes_true(lambda: not folder.exists())
    assert not is_alive(child)


def test_nothing_is_touched_when_the_block_ends_well(folder: Path, sleeper: psutil.Popen) -> None:
    before = set(psutil.Process().children())
    with with_watchdog(folder) as guard:
        guard.watch(sleeper)
        (watchdog,) = set(psutil.Process().children()) - before
    assert is_alive(sleeper)
    assert (folder / "kits" / "key").exists()
    assert not watchdog.is_running()


def test_a_block_that_raises_is_cleaned_up_after(folder: Path, sleeper: psutil.Popen) -> None:
    def interrupted_work() -> None:
        with with_watchdog(folder) as guard:
            guard.watch(sleeper)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted_work()
    assert not is_alive(sleeper)
    assert not folder.exists()


def test_the_command_goes_on_without_its_guardian(folder: Path, sleeper: psutil.Popen) -> None:
    before = set(psutil.Process().children())
    with with_watchdog(folder) as guard:
        (watchdog,) = set(psutil.Process().children()) - before
        watchdog.kill()
        assert comes_true(lambda: not is_alive(watchdog))
        guard.watch(sleeper)
    assert is_alive(sleeper)
    assert folder.exists()


@pytest.mark.parametrize("born", [0.0, 1e12])
def test_a_number_that_now_is_anothers_is_left_alone(
    born: float, folder: Path, sleeper: psutil.Popen, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    told.write_text(f"{sleeper.pid} {born}\n")
    with told.open("rb") as lines:
        run_watchdog(lines.fileno(), folder)
    assert is_alive(sleeper)
    assert not folder.exists()
