"""A site that its administrator has stopped answers nothing: its processes end with the command."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from fedminmax.network.flare.kits import provision, write_site_settings
from fedminmax.network.flare.local import free_port
from fedminmax.network.flare.process_tree import ENDED_WITH_PARENT, is_alive
from fedminmax.network.site.settings import SiteSettings
from tests.cli.command import ONE_THREAD, command
from tests.network.flare.sleeping_processes import SECONDS, SLEEP, started

# Three generations in sessions of their own, as a command, a main process and a job's are.
YOUNGEST = f"""
from fedminmax.network.flare.process_tree import end_with_parent
end_with_parent()
{SLEEP}
"""
MIDDLE = f"""
import subprocess, sys
from fedminmax.network.flare.process_tree import end_with_parent, lifeline
end_with_parent()
command = [sys.executable, "-c", {YOUNGEST!r}]
child = subprocess.Popen(command, stdin=lifeline(), start_new_session=True)
print(child.pid, flush=True)
child.wait()
"""
OLDEST = f"""
import subprocess, sys
from fedminmax.network.flare.process_tree import lifeline
command = [sys.executable, "-c", {MIDDLE!r}]
child = subprocess.Popen(
    command, stdin=lifeline(), stdout=subprocess.PIPE, start_new_session=True
)
print(child.pid, int(child.stdout.readline()), flush=True)
child.wait()
"""


def comes_true(question: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if question():
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_children_and_their_children_end_with_a_process_however_it_ends(sent: int) -> None:
    with started(OLDEST) as oldest:
        family = [psutil.Process(int(word)) for word in oldest.stdout.readline().split()]
        assert len(family) == 2
        assert all(map(is_alive, family))
        os.kill(oldest.pid, sent)
        oldest.wait(SECONDS)
        assert comes_true(lambda: not any(map(is_alive, family)))


def test_the_youngest_ends_with_the_middle_one() -> None:
    with started(OLDEST) as oldest:
        middle, youngest = map(psutil.Process, map(int, oldest.stdout.readline().split()))
        middle.kill()
        assert comes_true(lambda: not is_alive(youngest))
        oldest.kill()


def test_a_process_that_is_busy_ends_as_well() -> None:
    code = """
from fedminmax.network.flare.process_tree import end_with_parent
end_with_parent()
print(flush=True)
while True:
    sum(range(10**6))
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as busy:
        assert busy.stdin is not None
        assert busy.stdout is not None
        busy.stdout.readline()
        busy.stdin.close()
        assert busy.wait(SECONDS) == ENDED_WITH_PARENT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "role"),
    [
        (signal.SIGKILL, "site"),
        (signal.SIGTERM, "site"),
        (signal.SIGHUP, "site"),
        (signal.SIGKILL, "server"),
    ],
)
def test_nothing_is_left_of_a_stopped_site_or_server(sent: int, role: str, tmp_path: Path) -> None:
    kits = provision(tmp_path / "kits", host="localhost", port=free_port(), sites=["north"])
    write_site_settings(kits.sites["north"], SiteSettings(tmp_path / "north.csv"))
    kit = kits.sites["north"] if role == "site" else kits.server
    words = ["site", "start"] if role == "site" else ["federation", "start"]
    family: list[psutil.Process] = []

    def runs_the_engine() -> bool:
        family[:] = process.children(recursive=True)
        return any(str(kit) in " ".join(own.cmdline()) for own in family if is_alive(own))

    process = psutil.Popen(
        command(*words, "--kit", str(kit)),
        cwd=tmp_path,
        env=ONE_THREAD,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert comes_true(runs_the_engine)
    finally:
        process.send_signal(sent)
        process.wait(SECONDS)
    assert comes_true(lambda: not any(map(is_alive, family)))
