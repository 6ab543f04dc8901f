"""Additive models from files: predictions that explain themselves, and a report of effects."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import fedminmax
from fedminmax.config.read import read_config
from tests.cli.hospitals import TASKS, write_config, write_hospitals
from tests.cli.in_process import run_here
from tests.complaints import complaint_of

FAST = 'name = "fedminmax-fast"'


@pytest.mark.parametrize("target", TASKS)
def test_explanations_add_up_to_what_is_predicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    write_hospitals(tmp_path)
    monkeypatch.chdir(tmp_path)
    config = write_config(tmp_path, target, model='kind = "additive"', method=FAST)
    run_here("train", config)
    run_here("predict", "runs/fedminmax", "later.csv", "--explain")
    lines = pl.read_csv("predictions.csv")
    classes = {"ill": ("no", "yes"), "stage": ("low", "mid", "high"), "cost": ()}[target]
    names = {"ill": [""], "stage": [f" of {name}" for name in classes], "cost": [""]}[target]
    for name in names:
        on = name.replace(" of ", " on ")
        effects = [
            column
            for column in lines.columns
            if column.startswith("effect of ") and (not on or column.endswith(on))
        ]
        assert len(effects) >= 3
        total = lines[f"base score{name}"] + lines.select(effects).sum_horizontal()
        np.testing.assert_allclose(total, lines[f"score{name}"], rtol=1e-12, atol=1e-11)
    if target == "cost":
        np.testing.assert_allclose(lines["score"], lines["predicted"], rtol=1e-12)
    else:
        chances = lines.select(f"probability of {name}" for name in classes).to_numpy()
        scores = lines.select(f"score{name}" for name in names).to_numpy()
        against = np.log(chances).mean(axis=1) if target == "stage" else np.log(chances[:, 0])
        ours = np.log(chances if target == "stage" else chances[:, 1:]) - against[:, None]
        np.testing.assert_allclose(scores, ours, atol=1e-9)
    run_here("report", "runs/fedminmax", "--out", "report.html")
    page = Path("report.html").read_text()
    assert "What the model uses" in page
    assert ">age</h4>" in page


def test_other_models_are_not_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_hospitals(tmp_path)
    monkeypatch.chdir(tmp_path)
    run_here("train", write_config(tmp_path, method="rounds = 2"))
    model = fedminmax.load_model("runs/fedminmax")
    assert 'kind = "additive"' in complaint_of(lambda: model.explain("later.csv"))


@pytest.mark.parametrize("target", ["ill", "cost"])
def test_a_monotone_effect_is_one_in_files_reports_and_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    write_hospitals(tmp_path)
    monkeypatch.chdir(tmp_path)
    model = 'kind = "additive"\nmonotone = { age = "down" }'
    run_here("train", write_config(tmp_path, target, model=model, method=FAST))
    saved = fedminmax.load_model("runs/fedminmax")
    ages = pl.read_csv("later.csv").drop("age")[:1]
    ages = ages.join(pl.DataFrame({"age": np.linspace(0, 120, 1201)}), how="cross")
    explained = saved.explain(ages)
    assert np.diff(explained["score"].to_numpy()).max() <= 0.0
    run_here("report", "runs/fedminmax", "--out", "report.html")
    for file in ("report.html", "runs/fedminmax/model_card.md"):
        assert "“age” only down" in Path(file).read_text()


def test_three_classes_have_no_monotone_effects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_hospitals(tmp_path)
    monkeypatch.chdir(tmp_path)
    model = 'kind = "additive"\nmonotone = { age = "down" }'
    config = write_config(tmp_path, "stage", model=model, method=FAST)
    assert "3 classes" in complaint_of(lambda: read_config(config))
