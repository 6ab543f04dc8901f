"""Several seeds in one command, and the rows that each of them held out."""

import json
import tomllib
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from fedminmax.findings.text import TOO_FEW
from tests.cli.hospitals import (
    HOSPITALS,
    draw_patients,
    results_of,
    write_config,
    write_hospitals,
)
from tests.cli.in_process import complaint_here, run_here

Capture = pytest.CaptureFixture[str]
ROUNDS = "rounds = 3"


@pytest.fixture
def hospitals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_hospitals(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _said(capsys: Capture, *words: object) -> Any:
    capsys.readouterr()
    run_here(*words)
    return json.loads(capsys.readouterr().out)


def test_others_can_measure_on_the_listed_rows(hospitals: Path, capsys: Capture) -> None:
    north = Path("north.csv").read_text().splitlines()
    # A blank line is a row without values, and counts.
    Path("north.csv").write_text("\n".join([*north[:5], "", *north[5:]]) + "\n")
    run_here("train", write_config(hospitals, data="seed = 4", method=ROUNDS))
    run = Path("runs", "fedminmax")
    listed = json.loads((run / "held_out.json").read_text())
    assert (listed["share"], listed["seed"], list(listed["rows"])) == (0.2, 4, list(HOSPITALS))
    assert (run / "baseline" / "held_out.json").read_bytes() == (run / "held_out.json").read_bytes()
    lines = [north[0]]
    for hospital, numbers in listed["rows"].items():
        rows = Path(f"{hospital}.csv").read_text().splitlines()[1:]
        lines += [rows[number - 1] for number in numbers]
    Path("held.csv").write_text("\n".join(lines) + "\n")
    expected = results_of(run)["test"]
    found = _said(capsys, "evaluate", run, "held.csv", "--json")["test"]
    assert found["rows"] == expected["rows"]
    for name, metric in expected["metrics"].items():
        for own, other in zip(metric["by_group"], found["metrics"][name]["by_group"], strict=True):
            assert other["rows"] == own["rows"]
            assert other["value"] == pytest.approx(own["value"], rel=1e-6)


def test_test_files_hold_out_no_rows(hospitals: Path) -> None:
    run_here("train", write_config(hospitals, data='[data.test]\nx = "later.csv"', method=ROUNDS))
    assert not Path("runs", "fedminmax", "held_out.json").exists()


def test_each_seed_is_a_run_of_its_own_and_the_spread_is_over_them(
    hospitals: Path, capsys: Capture
) -> None:
    for seed, hospital in enumerate(HOSPITALS):
        draw_patients(150, seed).write_csv(f"{hospital}.csv")
    config = write_config(hospitals, data="held_out = 0.5\nseed = 7", method=ROUNDS)
    found = _said(capsys, "train", config, "--seeds", 3, "--json")
    folder = Path("runs", "fedminmax-seeds")
    assert found["finished"]
    assert found["seeds"] == [7, 8, 9]
    assert found["runs"] == [str(folder / f"seed-{seed}") for seed in (7, 8, 9)]
    stored = json.loads((folder / "seeds.json").read_text())
    assert stored == {key: found[key] for key in stored}
    # The run of a seed is the run of a configuration with this seed.
    alone = write_config(hospitals, data="held_out = 0.5\nseed = 8", method=ROUNDS, name="alone")
    run_here("train", alone)
    assert results_of(folder / "seed-8") == results_of(Path("runs", "alone"))
    text = (folder / "seed-8" / "config.toml").read_text()
    assert tomllib.loads(text) == tomllib.loads(alone.read_text())
    results = [results_of(Path(run)) for run in found["runs"]]
    lines = {line["name"]: line for line in found["lines"]}
    assert list(lines) == ["Female", "Male", "all records", "worst group"]
    risks = [own["test"]["metrics"]["risk"]["by_group"][0]["value"] for own in results]
    changes = [own["change"]["metrics"]["risk"]["by_group"][0]["value"] for own in results]
    for values, spread in (
        (risks, lines["Female"]["risks"]["FedMinMax"]),
        (changes, lines["Female"]["change"]),
    ):
        assert len(set(values)) == 3
        assert spread["values"] == values
        assert spread["mean"] == pytest.approx(fmean(values))
        assert spread["deviation"] == pytest.approx(stdev(values))
        assert (spread["min"], spread["max"]) == (min(values), max(values))


def test_seeds_go_on_where_they_stopped(hospitals: Path, capsys: Capture) -> None:
    config = write_config(hospitals, method=ROUNDS)
    words = ["train", config, "--out", "spread", "--seeds"]
    run_here(*words, 2)
    first = capsys.readouterr().out
    assert "over 2 seeds (0 to 1)" in first
    assert "not a confidence interval" in first
    assert TOO_FEW in first
    before = Path("spread", "seed-1", "results.json").stat().st_mtime_ns
    run_here(*words, 3)
    assert "over 3 seeds (0 to 2)" in capsys.readouterr().out
    assert Path("spread", "seed-1", "results.json").stat().st_mtime_ns == before
    assert Path("spread", "seeds.md").read_text().startswith("Test risk by group over 3 seeds")
    stopped = _said(capsys, *words, 5, "--budget", "0.000001s", "--json")
    assert stopped == {"run": "spread", "finished": False, "seeds_done": 3}
    assert json.loads(Path("spread", "seeds.json").read_text())["seeds"] == [0, 1, 2]


def test_a_folder_of_one_run_is_not_one_of_several_seeds(hospitals: Path, capsys: Capture) -> None:
    config = write_config(hospitals, method=ROUNDS)
    run_here("train", config, "--out", "one")
    said = complaint_here(capsys, "train", config, "--out", "one", "--seeds", 2)
    assert "one belongs to a different configuration" in said
    none = write_config(hospitals, data="held_out = 0", method=ROUNDS, name="none")
    said = complaint_here(capsys, "train", none, "--seeds", 2)
    assert "has no test records to compare seeds on" in said
    Path("north.csv").write_text("age\n")
    complaint_here(capsys, "train", config, "--seeds", 2)
    assert not Path("runs").exists()
