"""Several seeds in one command, and the rows that each of them held out.

`fedminmax train` with validation rows: which round is the answer, and what is said of it.
"""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from fedminmax import load_model
from fedminmax.config.read import read_config
from fedminmax.core.validation import TIE
from fedminmax.data.tables.load import load_federated_tables
from fedminmax.findings.text import TOO_FEW
from fedminmax.runs.plan import with_class
from tests.cli.command import complaint_here, fedminmax, run_here
from tests.cli.hospitals import (
    HOSPITALS,
    draw_patients,
    results_of,
    rounds_of,
    write_config,
    write_hospitals,
)

Capture = pytest.CaptureFixture[str]
ROUNDS = "rounds = 3"
DOCS = Path(__file__).parents[2] / "docs"
PAGES = "".join((DOCS / name).read_text() for name in ("own_data.md", "using_model.md"))
BLOCKS = re.findall(r"```(python|sh)\n(.*?)```", PAGES, flags=re.DOTALL)


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


NETWORK = 'kind = "mlp"\nhidden = [12]'
QUICK = 'rounds = 60\nlearning_rate = 1.0\nadversary_rate = 0.3\nbaseline = "none"'


@pytest.fixture
def new_hospitals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_hospitals(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def validation_risk(config: Path, model: Path) -> float:
    """All groups have fewer than 30 validation rows, so that all rows count as one."""
    read = read_config(config)
    tables, _ = with_class(read, load_federated_tables(read))
    saved = load_model(model)
    rows = [part.examples for part in tables.validation]
    x, y = (torch.cat([getattr(own, name) for own in rows]) for name in ("x", "y"))
    outcome = np.eye(len(saved.classes))[y.numpy()]
    return float(((saved.scores(x) - outcome) ** 2).sum(axis=1).mean())


def test_the_best_round_is_the_answer_and_the_last_model_is_beside_it(
    new_hospitals: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(new_hospitals, model=NETWORK, method=QUICK, data="validation = 0.2")
    run_here("train", config, "--set", "method.patience=8")
    said = capsys.readouterr()
    run = Path("runs", "fedminmax")
    results = results_of(run)
    found = results["validation"]
    chosen, last = found["chosen"], found["last"]
    census = json.loads((run / "census.json").read_text())
    assert np.sum(census["validation"], axis=0).tolist() == found["rows"]
    assert results["iterate"] == "best"
    assert results["method"]["rounds"] == last["round"] == chosen["round"] + 8 < 60
    assert results["convergence"]["reason"] == "no better on validation rows"
    for name, told in (("model", chosen), ("last", last)):
        risk = validation_risk(config, run / f"{name}.safetensors")
        assert risk == pytest.approx(told["risk"], rel=1e-5)
    listed = json.loads((run / "held_out.json").read_text())
    assert listed["validation"]["share"] == 0.2
    apart = Path("north.csv").read_text().splitlines()[:1]
    for hospital, numbers in listed["validation"]["rows"].items():
        assert not {*numbers} & {*listed["rows"][hospital]}
        own = Path(f"{hospital}.csv").read_text().splitlines()[1:]
        apart += [own[number - 1] for number in numbers]
    Path("apart.csv").write_text("\n".join(apart) + "\n")
    run_here("evaluate", run, "apart.csv", "--json")
    measured = json.loads(capsys.readouterr().out)["test"]
    assert measured["rows"] == sum(found["rows"])
    assert measured["metrics"]["risk"]["overall"]["value"] == pytest.approx(chosen["risk"])
    assert f"{sum(found['rows'])} validation records chose the model after round" in said.out
    assert "rows are set aside to choose the round (validation)" in said.err
    assert f"round {chosen['round']}" in (run / "model_card.md").read_text()

    lines = rounds_of(run)
    rows = np.array(found["rows"])
    worst = [float(np.array(line["validation_risks"]) @ rows / rows.sum()) for line in lines]
    best = int(np.argmin(worst))
    # A line tells of the model that entered its round.
    assert worst[chosen["round"]] == pytest.approx(chosen["risk"])
    assert worst[best] >= chosen["risk"] - TIE * chosen["standard_error"]

    run_here("report", run, "--appendix")
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "round chosen by validation" in page
    assert f"validation records chose the model after round {chosen['round']}" in page

    before = (run / "results.json").read_bytes()
    run_here("train", config, "--set", "method.patience=8")
    assert (run / "results.json").read_bytes() == before


@pytest.mark.slow
def test_stopped_and_resumed_it_chooses_as_if_never_stopped(new_hospitals: Path) -> None:
    config = write_config(new_hospitals, "cost", model=NETWORK, method=QUICK)
    run_here("train", config, "--out", "whole")
    for _ in range(100):
        run_here("train", config, "--out", "parts", "--budget", "0.02s")
        if Path("parts/results.json").exists():
            break
    whole, parts = results_of(Path("whole")), results_of(Path("parts"))
    assert whole["validation"] == parts["validation"]
    assert sum(whole["validation"]["rows"]) > 10  # a tenth, by default
    for model in ("model.safetensors", "last.safetensors"):
        assert Path("whole", model).read_bytes() == Path("parts", model).read_bytes()


def test_a_linear_model_sets_nothing_aside_unless_asked(new_hospitals: Path) -> None:
    config = write_config(new_hospitals, method="rounds = 3")
    run_here("train", config)
    run = Path("runs", "fedminmax")
    assert "validation" not in results_of(run)
    assert results_of(run)["iterate"] == "tail_average"
    assert not (run / "last.safetensors").exists()
    run_here("train", config, "--out", "asked", "--set", "data.validation=0.2")
    assert results_of(Path("asked"))["iterate"] == "best"
    assert results_of(Path("asked", "baseline"))["validation"]["rows"]


def test_validation_rows_are_neither_training_nor_test_rows(new_hospitals: Path) -> None:
    config = read_config(write_config(new_hospitals, data="validation = 0.25"))
    tables = load_federated_tables(config)
    parts: list[Any] = [tables.train, tables.validation, tables.test]
    ages = [{tuple(row) for own in part for row in own.examples.x.tolist()} for part in parts]
    assert not ages[0] & ages[1]
    assert not ages[1] & ages[2]
    rows = [sum(len(own.examples) for own in part) for part in parts]
    assert sum(rows) == 210
    # The encoding is that of training rows alone: their mean is 0, and of no others.
    x = torch.cat([own.examples.x for own in tables.train])
    assert abs(float(x[:, 0].double().mean())) < 1e-6


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--set", "data.validation=0.8"], "[data] validation is 0.8; give a number"),
        (["--set", "method.patience=5"], "patience = 5 needs validation rows"),
    ],
)
def test_words_that_cannot_be(
    new_hospitals: Path, capsys: pytest.CaptureFixture[str], words: list[str], part: str
) -> None:
    config = write_config(new_hospitals)
    assert part in complaint_here(capsys, "train", config, *words)
    assert not Path("runs").exists()


def test_the_best_iterate_needs_validation_rows(
    new_hospitals: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(new_hospitals, method='iterate = "best"')
    complaint = complaint_here(capsys, "train", config)
    assert 'iterate = "best" is chosen by validation rows' in complaint


def test_the_commands_run_one_after_another(tmp_path: Path) -> None:
    said = ""
    for language, block in BLOCKS:
        commands = [block] if language == "python" else block.splitlines()
        for one in commands:
            said += _run(language, one, tmp_path)
    ours, baseline = (
        results_of(tmp_path / "runs" / "fedminmax" / folder)["test"]["metrics"]["risk"]
        for folder in ("", "baseline")
    )
    assert baseline["worst_group"] == "female"
    assert ours["by_group"][0]["value"] < baseline["by_group"][0]["value"]
    assert len(pl.read_csv(tmp_path / "predictions.csv")) == 200
    assert "“female” was worst off with the standard model" in " ".join(said.split())


def _run(language: str, one: str, folder: Path) -> str:
    if language == "python":
        done = subprocess.run(
            [sys.executable, "-c", one], cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout
    program, *rest = one.split()
    assert program == "fedminmax"
    said = fedminmax(*rest, cwd=folder)
    assert said.returncode == 0, said.stderr
    return said.stdout
