"""The experiment from end to end, small: its files, its JSON, and going on after any stop."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import ONE_THREAD, SMALL, command, fedminmax

WORDS = ["reproduce", "synthetic", *SMALL, "--rounds", "400", "--out", "here"]
ONE_RUN = [*WORDS, "--methods", "fedminmax", "--settings", "ESG"]


def rows_of(folder: Path) -> Any:
    return json.loads((folder / "results.json").read_text())["rows"]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("uninterrupted")
    done = fedminmax(*ONE_RUN, cwd=folder)
    assert done.returncode == 0, done.stderr
    return rows_of(folder / "here")


@contextmanager
def running_with_a_checkpoint(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a run whose checkpoints are due all the time, and wait until it has written one."""
    paths = [str(folder), ONE_THREAD.get("PYTHONPATH", "")]
    environment = ONE_THREAD | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    (folder / "sitecustomize.py").write_text(
        "import fedminmax.training.checkpoint as r\nr.SECONDS_BETWEEN_CHECKPOINTS = 0.0\n"
    )
    saved = folder / "here" / "runs" / "esg-fedminmax-fold-0" / "checkpoint.previous.bin"
    with subprocess.Popen(
        command(*ONE_RUN), cwd=folder, env=environment, text=True, stderr=subprocess.PIPE
    ) as process:
        try:
            deadline = time.monotonic() + 60
            while not saved.exists():
                assert process.poll() is None, "the run ended before it could be stopped"
                assert time.monotonic() < deadline
                time.sleep(0.01)
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_stopping_and_calling_again_ends_at_the_same_numbers(
    signal_number: signal.Signals, tmp_path: Path, uninterrupted: Any
) -> None:
    with running_with_a_checkpoint(tmp_path) as process:
        process.send_signal(signal_number)
        _, complaint = process.communicate(timeout=60)
    assert process.returncode == (-9 if signal_number == signal.SIGKILL else 130)
    if signal_number != signal.SIGKILL:
        assert "run the same command again" in complaint
    assert not (tmp_path / "here" / "results.json").exists()
    again = fedminmax(*ONE_RUN, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert rows_of(tmp_path / "here") == uninterrupted
    history = (tmp_path / "here/runs/esg-fedminmax-fold-0/rounds.jsonl").read_text()
    rounds = [json.loads(line)["round"] for line in history.splitlines()]
    assert rounds == [*range(1, 11), *range(20, 401, 10)]


def test_a_damaged_checkpoint_falls_back_to_the_previous_one_and_says_so(
    tmp_path: Path, uninterrupted: Any
) -> None:
    with running_with_a_checkpoint(tmp_path) as process:
        process.kill()
    current = tmp_path / "here" / "runs" / "esg-fedminmax-fold-0" / "checkpoint.bin"
    if current.exists():
        current.write_bytes(current.read_bytes()[:1000])
    else:  # killed between the two renames
        current.write_bytes(b"")
    again = fedminmax(*ONE_RUN, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "truncated or corrupt; using the previous checkpoint" in again.stderr
    assert rows_of(tmp_path / "here") == uninterrupted


def test_json_is_alone_on_standard_output_and_nothing_else_is_printed(tmp_path: Path) -> None:
    done = fedminmax(*WORDS[:-4], "--rounds", "5", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    content = json.loads(done.stdout)
    assert len(content["rows"]) == 10
    assert {row["rounds"] for row in content["rows"]} == {2, 3, 5}
    for row in content["rows"]:
        assert 0 < row["best"]["mean"] <= row["worst"]["mean"] < 2


def test_calls_for_single_methods_add_up_to_one_table(tmp_path: Path) -> None:
    words = [*WORDS[:-4], "--rounds", "5", "--out", "here"]
    for method in ("afl", "fedminmax"):
        assert fedminmax(*words, "--methods", method, cwd=tmp_path).returncode == 0
    printed = fedminmax(*words, "--methods", "fedminmax", "--settings", "ESG", cwd=tmp_path)
    assert [row["method"] for row in rows_of(tmp_path / "here")] == ["AFL", "FedMinMax"] * 2
    assert "0.451" in printed.stdout
    assert "results.json" in printed.stdout


def test_fedminmax_settings_and_centralized_are_one_trajectory(tmp_path: Path) -> None:
    """Lemma 2, through the whole command: partitions differ, numbers do not (float32)."""
    words = [*WORDS[:-4], "--rounds", "30", "--out", "here", "--methods", "fedminmax,centralized"]
    assert fedminmax(*words, cwd=tmp_path).returncode == 0
    rows = rows_of(tmp_path / "here")
    assert [row["setting"] for row in rows] == ["ESG", "SSG", "centralized"]
    for row in rows[1:]:
        assert row["worst"]["mean"] == pytest.approx(rows[0]["worst"]["mean"], abs=1e-5)
        assert row["best"]["mean"] == pytest.approx(rows[0]["best"]["mean"], abs=1e-5)


def test_cross_validation_folds_leave_out_different_rows(tmp_path: Path) -> None:
    done = fedminmax(
        *WORDS[:-4],
        *["--rounds", "3", "--methods", "centralized", "--folds", "3"],
        *["--folds-by", "cross_validation", "--json"],
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert row["folds"] == 3
    assert row["worst"]["deviation"] > 0
    # 200 rows in three parts: two folds train on 132 rows and one on 136, or the like.
    assert row["gradient_evaluations"] in (3 * 132, 3 * 134, 3 * 136)
