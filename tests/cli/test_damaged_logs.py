"""A log that is no text any more: one line says which and what to do, and that works."""

from pathlib import Path

import pytest

from tests.cli.hospitals import write_config, write_hospitals
from tests.cli.in_process import complaint_here, run_here

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
