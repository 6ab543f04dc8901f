"""`train` with kind = "auto": it decides, says why, and then is the run of what it chose."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.cli.hospitals import results_of
from tests.cli.in_process import complaint_here, run_here

CONFIG = """
[data]
target = "ill"
classes = ["no", "yes"]
[data.sites]
north = "north.csv"
south = "south.csv"
[groups]
columns = ["sex"]
minimum_size = 5
[features.dose]
kind = "numeric"
[features.age]
kind = "numeric"
[model]
kind = "KIND"
[method]
baseline = "none"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two sites; too little and too much of a dose is bad, or more of it is worse."""
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    for name in ("north", "south"):
        dose, age = generator.normal(size=(2, 400))
        chance = {"ill": np.abs(dose) * 3 - 2.5, "worse": dose * 2}
        labels = {
            target: np.where(generator.random(400) < 1 / (1 + np.exp(-need)), "yes", "no")
            for target, need in chance.items()
        }
        sex = generator.choice(["f", "m"], 400)
        pl.DataFrame({"dose": dose, "age": age, "sex": sex, **labels}).write_csv(f"{name}.csv")
    return tmp_path


def write(kind: str, target: str = "ill", further: str = "") -> str:
    """Write a configuration and return its name."""
    text = CONFIG.replace("KIND", kind).replace('"ill"', f'"{target}"')
    Path(f"{kind}.toml").write_text(text + further, encoding="utf-8")
    return f"{kind}.toml"


@pytest.mark.parametrize(("target", "chosen"), [("ill", "spline"), ("worse", "logistic")])
def test_it_is_the_run_of_the_model_that_it_chose(
    target: str, chosen: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_here("train", write("auto", target))
    said = capsys.readouterr().err
    assert f'kind = "auto" chose {chosen}: on 128 validation rows' in said
    run_here("train", write(chosen, target))
    ours, named = (results_of(folder / "runs" / kind) for kind in ("auto", chosen))
    models = ours.pop("models")
    assert models["chosen"] == chosen
    assert [own["kind"] for own in models["compared"]] == ["logistic", "spline"]
    plain, richer = (own["risk"] for own in models["compared"])
    assert (plain - richer > models["standard_error"]) == (chosen == "spline")
    note = ours["notes"].pop(0)
    assert note in said
    assert f'kind = "auto" chose {chosen}' in Path("runs/auto/model_card.md").read_text()
    # All rows are trained on, those that were compared on included.
    assert "models" not in named
    assert ours == named
    files = [Path("runs", kind, "model.safetensors").read_bytes() for kind in ("auto", chosen)]
    assert files[0] == files[1]
    run_here("train", "auto.toml")
    again = json.loads(Path("runs/auto/results.json").read_text())
    assert again["models"] == models


def test_where_it_cannot_decide_it_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del folder
    name = write("auto", further="[privacy]\nepsilon = 1.0\ndelta = 1e-5\n")
    assert "would spend the budget in [privacy] again" in complaint_here(capsys, "train", name)
    said = complaint_here(capsys, "federation", "local", write("auto"))
    assert 'give "logistic" or "spline"' in said
