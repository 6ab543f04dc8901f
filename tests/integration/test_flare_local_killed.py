"""`fedminmax federation local`, killed by force: its watchdog leaves no process and no folder."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from fedminmax.network.flare.process_tree import is_alive
from tests.cli.command import ONE_THREAD, command
from tests.network.network_problem import SITES, write_tables

SECONDS = 120.0
JOB = "nvflare.private.fed.app.client.worker_process"


def comes_true(question: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if question():
            return True
        time.sleep(0.2)
    return False


def jobs_among(processes: list[psutil.Process]) -> int:
    return sum(JOB in process.cmdline() for process in processes if is_alive(process))


def test_nothing_is_left_of_a_killed_command(tmp_path: Path) -> None:
    config, room = write_tables(tmp_path), tmp_path / "room"
    room.mkdir()
    family: list[psutil.Process] = []

    def all_sites_work() -> bool:
        family[:] = process.children(recursive=True)
        return jobs_among(family) == len(SITES)

    process = psutil.Popen(
        command("federation", "local", str(config), "--out", str(tmp_path / "out")),
        cwd=tmp_path,
        env=ONE_THREAD | {"TMPDIR": str(room)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert comes_true(all_sites_work)
        assert any(room.iterdir())
    finally:
        process.kill()
        process.wait()
    assert comes_true(lambda: not any(map(is_alive, family)))
    assert comes_true(lambda: not any(room.iterdir()))
