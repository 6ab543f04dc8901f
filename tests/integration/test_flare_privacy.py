"""`fedminmax federation local` with noise, killed by force and called again: it spends once."""

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from fedminmax.network.flare.process_tree import is_alive
from fedminmax.runs.folder import read_results
from tests.cli.command import ONE_THREAD, command
from tests.network.network_problem import SITES
from tests.network.private_sites import private_config

pytestmark = pytest.mark.slow
SECONDS = 600.0
ROUNDS = 40


def comes_true(question: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if question():
            return True
        time.sleep(0.1)
    return False


def lines_of(path: Path) -> list[dict[str, Any]]:
    *lines, _ = path.read_text().split("\n") if path.exists() else [""]
    return [json.loads(line) for line in lines]


def test_a_killed_run_goes_on_with_the_noise_of_its_sites_and_spends_once(tmp_path: Path) -> None:
    config = private_config(tmp_path)
    config.write_text(config.read_text().replace("rounds = 2", f"rounds = {ROUNDS}"))
    out, memory = tmp_path / "out", tmp_path / "out" / "federation" / "memory"
    words = command("federation", "local", str(config), "--out", str(out))
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = psutil.Popen(words, cwd=tmp_path, env=ONE_THREAD, **quiet)
    family: list[psutil.Process] = []

    def rounds() -> list[dict[str, Any]]:
        found = list(memory.glob("server/*/0-fedminmax-fast/rounds.jsonl"))
        return lines_of(found[0]) if found else []

    try:
        assert comes_true(lambda: len(rounds()) >= 3)
    finally:
        family += process.children(recursive=True)
        process.kill()
        process.wait()
    assert comes_true(lambda: not any(map(is_alive, family)))
    before = rounds()
    assert len(before) < ROUNDS
    for site in SITES:
        (key,) = (memory / "sites" / site).glob("*.noise.key")
        assert key.stat().st_mode & 0o077 == 0
        assert len(lines_of(memory / "sites" / site / "privacy.jsonl")) == 1
    done = subprocess.run(
        words, cwd=tmp_path, env=ONE_THREAD, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    after = lines_of(out / "rounds.jsonl")
    assert [entry["round"] for entry in after] == list(range(1, ROUNDS + 1))
    # What the server had is what it has; the rest is of the same noise, or sites would refuse.
    kept = len(before) - 1
    assert [entry["risks"] for entry in after[:kept]] == [e["risks"] for e in before[:kept]]
    assert len(lines_of(tmp_path / "fedminmax-privacy.jsonl")) == 1
    results = read_results(out)
    assert results is not None
    assert results.privacy is not None
    assert results.privacy.spent == pytest.approx(4.0, rel=1e-2)
    assert "(epsilon, delta) = (4, 0.001)" in " ".join(done.stdout.split())
