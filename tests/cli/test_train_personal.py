"""`fedminmax train` measures personal models on their own sites' rows, and on nobody else's.

Additive models from files: predictions that explain themselves, and a report of effects.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression

import fedminmax
from fedminmax.config.read import read_config
from fedminmax.findings.tables import Table
from fedminmax.report.details import details_of
from fedminmax.report.read_run import read_run
from tests.cli.command import run_here
from tests.cli.hospitals import (
    HOSPITALS,
    TASKS,
    draw_patients,
    results_of,
    write_config,
    write_hospitals,
)
from tests.complaints import complaint_of

RUN = Path("runs", "fedminmax")
FAR = 'rounds = 60\nname = "ditto"\npull = 0.0\nepochs = 20\nlearning_rate = 0.1'


@pytest.fixture
def hospitals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_hospitals(tmp_path)
    for seed, name in enumerate(HOSPITALS, 20):
        draw_patients(60, seed).write_csv(tmp_path / f"{name}_test.csv")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_without_a_pull_each_site_has_least_squares_of_its_own_rows(
    hospitals: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [f'{name} = "{name}_test.csv"' for name in HOSPITALS]
    tests = f'test = {{ {", ".join(files)}, elsewhere = "later.csv" }}'
    run_here("train", write_config(hospitals, "cost", data=tests, method=FAR))
    results = results_of(RUN)
    note = "test rows of 'elsewhere' belong to no site: personal models are not measured on them"
    assert note in results["notes"]
    errors, sex = _errors_of_least_squares(hospitals)
    risk = results["personal"]["metrics"]["risk"]
    assert results["personal"]["rows"] == 3 * 60 == results["test"]["rows"] - 80
    assert risk["overall"]["value"] == pytest.approx((errors**2).mean(), rel=1e-3)
    for number, name in enumerate(("Female", "Male")):
        assert risk["by_group"][number]["rows"] == (sex == name).sum()
        expected = (errors[sex == name] ** 2).mean()
        assert risk["by_group"][number]["value"] == pytest.approx(expected, rel=1e-3)
    assert risk["overall"]["value"] != results["test"]["metrics"]["risk"]["overall"]["value"]
    # A title is wrapped where its table is narrow.
    said = " ".join(capsys.readouterr().out.split())
    assert "Personal models" in said
    card = (RUN / "model_card.md").read_text()
    assert "## Personal models" in card
    assert note in card
    common, personal = measures_of(RUN)
    assert common.lines[2][1] == "260"
    assert personal.lines[2][1] == "180"


def _errors_of_least_squares(folder: Path) -> tuple[NDArray[np.float64], NDArray[np.str_]]:
    errors, sex = [], []
    for name in HOSPITALS:
        train, test = (pl.read_csv(folder / f"{name}{end}.csv") for end in ("", "_test"))
        exact = LinearRegression().fit(_columns(train), train["cost"].to_numpy())
        errors.append(exact.predict(_columns(test)) - test["cost"].to_numpy())
        sex.append(test["sex"].to_numpy())
    return np.concatenate(errors), np.concatenate(sex)


def _columns(frame: pl.DataFrame) -> NDArray[np.float64]:
    return frame.select("age", "dose", "ward").to_dummies("ward").to_numpy()


def test_a_single_sites_own_model_is_the_common_one(hospitals: Path) -> None:
    method = 'name = "ditto"\npull = 0.0\nrounds = 5\niterate = "last"\nbaseline = "none"'
    run_here("train", write_config(hospitals, sites={"all": "all.csv"}, method=method))
    results = results_of(RUN)
    own, common = results["personal"], results["test"]
    assert own["rows"] == common["rows"]
    assert own["metrics"].keys() == common["metrics"].keys()
    for name, metric in common["metrics"].items():
        found = own["metrics"][name]["overall"]
        assert found == pytest.approx(metric["overall"], abs=1e-5)


def test_thresholds_by_group_and_site_equalise_rates(hospitals: Path) -> None:
    """LoGoFair's are measured where they stay; the common model is FedAvg's, with its rates."""
    for path in hospitals.glob("*.csv"):
        women = pl.col("sex") == "Female"
        ill = pl.when(women & (pl.col("dose") < 1)).then(pl.lit("no")).otherwise("ill")
        ward = pl.when(women).then(pl.lit("a")).otherwise(pl.lit("b"))
        pl.read_csv(path).with_columns(ill=ill, ward=ward).write_csv(path)
    files = ", ".join(f'{name} = "{name}_test.csv"' for name in HOSPITALS)
    method = (
        'rounds = 40\nname = "logofair"\nbudget = 0.02\nlocal_budget = 0.05\nlearning_rate = 0.1'
    )
    run_here("train", write_config(hospitals, data=f"test = {{ {files} }}", method=method))
    results = results_of(RUN)
    own, common = (_selected(results[name]) for name in ("personal", "test"))
    assert max(common) - min(common) > 0.2
    assert max(own) - min(own) < 0.5 * (max(common) - min(common))


def _selected(measured: dict[str, Any]) -> list[float]:
    return [group["value"] for group in measured["metrics"]["selection_rate"]["by_group"]]


def test_rows_of_others_alone_leave_nothing_to_measure(
    hospitals: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    method = 'name = "ditto"\nrounds = 2'
    config = write_config(hospitals, data='test = { elsewhere = "later.csv" }', method=method)
    run_here("train", config)
    assert results_of(RUN)["personal"] == {"rows": 0, "min_rows": 50, "metrics": {}}
    assert "Personal models" not in capsys.readouterr().out
    assert "## Personal" not in (RUN / "model_card.md").read_text()
    assert not any("Personal" in table.caption for table in measures_of(RUN))


def test_other_methods_have_none(hospitals: Path) -> None:
    run_here("train", write_config(hospitals, method="rounds = 2"))
    assert "personal" not in json.loads((RUN / "results.json").read_text())


def measures_of(run: Path) -> tuple[Table, ...]:
    details = details_of(read_run(run), "run", appendix=False)
    return next(one.tables for one in details if one.name == "measures")


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
    assert "What does the model use?" in page
    assert ">age</h3>" in page


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
