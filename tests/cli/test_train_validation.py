"""`fedminmax train` with validation rows: which round is the answer, and what is said of it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedminmax import load_model
from fedminmax.config.read import read_config
from fedminmax.core.validation import TIE
from fedminmax.data.tables.load import load_federated_tables
from tests.cli.hospitals import results_of, rounds_of, write_config, write_hospitals
from tests.cli.in_process import complaint_here, run_here

NETWORK = 'kind = "mlp"\nhidden = [12]'
QUICK = 'rounds = 60\nlearning_rate = 1.0\nadversary_rate = 0.3\nbaseline = "none"'


@pytest.fixture
def hospitals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_hospitals(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def validation_risk(config: Path, model: Path) -> float:
    """All groups have fewer than 30 validation rows, so that all rows count as one."""
    tables = load_federated_tables(read_config(config))
    saved = load_model(model)
    rows = [part.examples for part in tables.validation]
    x, y = (torch.cat([getattr(own, name) for own in rows]) for name in ("x", "y"))
    outcome = np.eye(len(saved.classes))[y.numpy()]
    return float(((saved.scores(x) - outcome) ** 2).sum(axis=1).mean())


def test_the_best_round_is_the_answer_and_the_last_model_is_beside_it(
    hospitals: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(hospitals, model=NETWORK, method=QUICK, data="validation = 0.2")
    run_here("train", config, "--patience", "8")
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

    run_here("report", run)
    page = Path("report.html").read_text(encoding="utf-8")
    assert "round chosen by validation" in page
    assert f"validation records chose the model after round {chosen['round']}" in page

    before = (run / "results.json").read_bytes()
    run_here("train", config, "--patience", "8")
    assert (run / "results.json").read_bytes() == before


@pytest.mark.slow
def test_stopped_and_resumed_it_chooses_as_if_never_stopped(hospitals: Path) -> None:
    config = write_config(hospitals, "cost", model=NETWORK, method=QUICK)
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


def test_a_linear_model_sets_nothing_aside_unless_asked(hospitals: Path) -> None:
    config = write_config(hospitals, method="rounds = 3")
    run_here("train", config)
    run = Path("runs", "fedminmax")
    assert "validation" not in results_of(run)
    assert results_of(run)["iterate"] == "tail_average"
    assert not (run / "last.safetensors").exists()
    run_here("train", config, "--out", "asked", "--validation", "0.2")
    assert results_of(Path("asked"))["iterate"] == "best"
    assert results_of(Path("asked", "baseline"))["validation"]["rows"]


def test_validation_rows_are_neither_training_nor_test_rows(hospitals: Path) -> None:
    config = read_config(write_config(hospitals, data="validation = 0.25"))
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
        (["--validation", "0.8"], "validation = 0.8; give the share of validation rows"),
        (["--patience", "5"], "patience = 5 needs validation rows"),
    ],
)
def test_words_that_cannot_be(
    hospitals: Path, capsys: pytest.CaptureFixture[str], words: list[str], part: str
) -> None:
    config = write_config(hospitals)
    assert part in complaint_here(capsys, "train", config, *words)
    assert not Path("runs").exists()


def test_the_best_iterate_needs_validation_rows(
    hospitals: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(hospitals, method='iterate = "best"')
    complaint = complaint_here(capsys, "train", config)
    assert 'iterate = "best" is chosen by validation rows' in complaint
