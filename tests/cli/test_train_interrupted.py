"""`fedminmax train` ends with the same numbers, however often and however roughly it is stopped.

A log that is no text any more: one line says which and what to do, and that works.
"""

import json
import resource
import signal
import subprocess
import time
from functools import partial
from pathlib import Path

import pytest

from fedminmax.runs.folder import claim_run
from tests.cli.command import ONE_THREAD, call, command, complaint_here, fedminmax, run_here
from tests.cli.hospitals import results_of, rounds_of, write_config, write_hospitals

ROUNDS = 500


@pytest.fixture
def hospitals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_hospitals(tmp_path)
    monkeypatch.chdir(tmp_path)
    write_config(tmp_path, method=f"rounds = {ROUNDS}")
    return tmp_path


@pytest.fixture(scope="module")
def never_stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run on the same rows, without a stop."""
    folder = tmp_path_factory.mktemp("never_stopped")
    write_hospitals(folder)
    write_config(folder, method=f"rounds = {ROUNDS}")
    done = fedminmax("train", "fedminmax.toml", "--out", "run", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "run"


def check_same(run: Path, other: Path) -> None:
    for folder in ("", "baseline"):
        assert results_of(run / folder) == results_of(other / folder)
        assert rounds_of(run / folder) == rounds_of(other / folder)
        ours, theirs = (own / folder / "model.safetensors" for own in (run, other))
        assert ours.read_bytes() == theirs.read_bytes()


def test_after_a_kill_it_goes_on(
    hospitals: Path, never_stopped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path("run")
    words = ["train", "fedminmax.toml", "--out", "run"]
    run_here(*words, "--budget", "0.05s")
    assert "run the same command again to continue" in capsys.readouterr().out
    saved = rounds_of(run)[-1]["round"]
    assert 0 < saved < ROUNDS
    with subprocess.Popen(command(*words), cwd=hospitals, env=ONE_THREAD) as process:
        while len(rounds_of(run)) <= saved + 20 and process.poll() is None:
            time.sleep(0.01)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert not (run / "results.json").exists()
    done = fedminmax(*words, cwd=hospitals)
    assert done.returncode == 0, done.stderr
    check_same(run, never_stopped)


def test_a_call_that_ended_before_the_change_was_written(hospitals: Path) -> None:
    """A kill there leaves results without it."""
    words = ["train", "fedminmax.toml", "--out", "run", "--rounds", "20"]
    run_here(*words)
    results, card = hospitals / "run/results.json", hospitals / "run/model_card.md"
    whole = results.read_bytes(), card.read_bytes()
    content = json.loads(whole[0])
    del content["change"]
    results.write_text(json.dumps(content))
    run_here(*words)
    assert (results.read_bytes(), card.read_bytes()) == whole


def test_a_change_is_from_the_baseline_as_it_stands(hospitals: Path) -> None:
    words = ["train", "fedminmax.toml", "--out", "run", "--rounds"]
    run_here(*words, "20")
    run = hospitals / "run"
    shorter = results_of(run / "baseline")
    run_here(*words, "40")
    longer = results_of(run)
    assert longer["change"]["baseline"]["rounds"] == 40
    # As if the second call had been killed between method and baseline.
    (run / "baseline" / "results.json").write_text(json.dumps(shorter | {"seconds": 0.0}))
    run_here(*words, "20")
    assert results_of(run)["change"]["baseline"]["rounds"] == 20
    run_here(*words, "40")
    assert results_of(run) == longer


def test_a_full_disk_keeps_the_last_checkpoint(hospitals: Path, never_stopped: Path) -> None:
    run = Path("run")
    words = ["train", "fedminmax.toml", "--out", "run"]
    run_here(*words, "--budget", "0.02s")
    before = (run / "checkpoint.bin").read_bytes()
    # No file may grow beyond this: neither a new checkpoint nor, soon, the rounds fit.
    room = max(len(before), (run / "rounds.jsonl").stat().st_size) - 1
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (room, room))
    done = subprocess.run(
        command(*words),
        cwd=hospitals,
        env=ONE_THREAD,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limit,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "fedminmax: error: run: File too large; make room there; the last checkpoint is kept; "
        "run the same command again to continue"
    )
    assert (run / "checkpoint.bin").read_bytes() == before
    assert not list(run.glob("*.partial"))
    run_here(*words)
    check_same(run, never_stopped)


def test_only_a_full_disk_asks_for_room(
    hospitals: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_here("train", "fedminmax.toml", "--out", "run", "--rounds", "2")
    checkpoint = hospitals / "run" / "checkpoint.bin"
    checkpoint.unlink()
    checkpoint.mkdir()
    assert call("train", "fedminmax.toml", "--out", "run", "--rounds", "3") == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        "fedminmax: error: run/checkpoint.bin: Is a directory; the last checkpoint is kept; "
        "run the same command again to continue"
    )


def test_a_run_belongs_to_one_process(hospitals: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "fedminmax.toml", "--out", "run", "--rounds", "3"]
    run_here(*words)
    before = Path("run/config.toml").read_bytes()
    longer = write_config(hospitals, method="rounds = 9", name="longer")
    with claim_run(hospitals / "run") as ours:
        assert ours
        for config in ("fedminmax.toml", longer):
            assert complaint_here(capsys, "train", config, "--out", "run") == (
                "another process is training in run; wait, or choose another --out"
            )
    assert Path("run/config.toml").read_bytes() == before


NO_TEXT = b'{"round": 1, "\xff\xfe": 0}\n'
ADVICE = "is damaged: it is not text; remove it, and the run goes on from its checkpoint"


def test_train_names_its_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_hospitals(tmp_path)
    monkeypatch.chdir(tmp_path)
    write_config(tmp_path, method="rounds = 1000")
    words = ["train", "fedminmax.toml", "--out", "run"]
    run_here(*words, "--budget", "0.05s")
    rounds, checkpoint = Path("run/rounds.jsonl"), Path("run/checkpoint.bin")
    assert not Path("run/results.json").exists()
    rounds.write_bytes(rounds.read_bytes() + NO_TEXT)
    before = rounds.read_bytes(), checkpoint.read_bytes()
    assert complaint_here(capsys, *words) == f"run/rounds.jsonl {ADVICE}"
    assert (rounds.read_bytes(), checkpoint.read_bytes()) == before
    rounds.unlink()
    # Just beyond what is saved: the rest of the thousand would show nothing more.
    saved = before[0].count(b"\n")
    run_here(*words, "--rounds", saved + 5)
    assert Path("run/results.json").exists()
