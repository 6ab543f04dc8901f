"""What `fedminmax train` and its followers refuse: one line, and nothing is written or lost."""

import json
from pathlib import Path

import polars as pl
import pytest
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from tests.cli.command import complaint_here, run_here
from tests.cli.hospitals import draw_patients, write_config, write_hospitals

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def hospitals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_hospitals(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(capsys: Capture, config: Path) -> str:
    found = complaint_here(capsys, "train", config.name)
    assert not Path("runs").exists()
    return found


def test_a_missing_an_empty_and_a_wrongly_cut_file(hospitals: Path, capsys: Capture) -> None:
    config = write_config(hospitals, sites={"north": "north.csv", "east": "east.csv"})
    assert "east.csv does not exist or is not a file; correct the path" in refused(capsys, config)
    Path("east.csv").touch()
    assert "east.csv is empty; it needs a header line and rows" in refused(capsys, config)
    config = write_config(hospitals, data='delimiter = ";"')
    assert "north.csv: delimiter ';' gives 1 column," in refused(capsys, config)


def test_columns_that_differ(hospitals: Path, capsys: Capture) -> None:
    pl.read_csv("west.csv").rename({"dose": "dosis"}).write_csv("west.csv")
    assert "west.csv (50 rows) has no column 'dose', which the configuration names; did you " in (
        refused(capsys, write_config(hospitals))
    )


def test_a_single_class_and_a_text_among_numbers(hospitals: Path, capsys: Capture) -> None:
    rows = pl.read_csv("north.csv")
    rows.with_columns(ill=pl.lit("no")).write_csv("healthy.csv")
    config = write_config(hospitals, sites={"healthy": "healthy.csv"})
    assert "target 'ill' has one class, 'no', in all " in refused(capsys, config)
    texts = [*["40"] * 6, "forty", *["40"] * (len(rows) - 7)]
    rows.with_columns(age=pl.Series(texts)).write_csv("north.csv")
    assert "north.csv (90 rows): column 'age', row 7: 'forty' is not a number" in refused(
        capsys, write_config(hospitals)
    )


def test_a_group_that_training_never_saw(hospitals: Path, capsys: Capture) -> None:
    draw_patients(20, 3).with_columns(sex=pl.lit("Other")).write_csv("new.csv")
    tested = '[data.test]\nnew = "new.csv"'
    config = write_config(hospitals, data=tested)
    assert "group 'Other' (20 rows) has no training row at any site" in refused(capsys, config)
    run_here("train", write_config(hospitals, method="rounds = 2"))
    assert "no row is of a group that training saw ('Female', 'Male')" in complaint_here(
        capsys, "evaluate", "runs/fedminmax", "new.csv"
    )


def test_two_sites_of_one_name(hospitals: Path, capsys: Capture) -> None:
    config = write_config(hospitals)
    config.write_text(config.read_text().replace("south =", "north ="))
    assert "the same key is given twice" in refused(capsys, config)


def test_settings_that_do_not_exist(hospitals: Path, capsys: Capture) -> None:
    config = write_config(hospitals, method='baseline = "fedavgg"')
    assert refused(capsys, config) == (
        "fedminmax.toml: [method] baseline = 'fedavgg' is unknown; did you mean 'fedavg'?"
    )
    config = write_config(hospitals, method='iterate = "middle"')
    assert "[method] iterate is 'middle'; give 'average', 'last', 'tail_average'" in (
        refused(capsys, config)
    )
    config = write_config(hospitals, method="[logging]\ntensorbord = true")
    assert "[logging] 'tensorbord' is unknown; did you mean 'tensorboard'?" in (
        refused(capsys, config)
    )


def test_a_method_or_baseline_that_cannot_do_this_task(hospitals: Path, capsys: Capture) -> None:
    for line in ('name = "fairfed"', 'baseline = "fairfed"'):
        found = refused(capsys, write_config(hospitals, "cost", method=line))
        assert found.startswith("FairFed needs labels of two classes, got quantities to predict")


def test_a_run_of_another_configuration(hospitals: Path, capsys: Capture) -> None:
    words = ["train", "fedminmax.toml", "--rounds", "2"]
    write_config(hospitals)
    run_here(*words)
    before = Path("runs/fedminmax/results.json").read_bytes()
    write_config(hospitals, method="rounds = 30\nlearning_rate = 0.5")
    assert "configuration.method.options.learning_rate is " in complaint_here(capsys, *words)
    write_config(hospitals)
    draw_patients(50, seed=77).write_csv("west.csv")
    found = complaint_here(capsys, *words)
    assert found.startswith("runs/fedminmax belongs to a different configuration (")
    assert "configuration.data.digest is " in found
    assert Path("runs/fedminmax/results.json").read_bytes() == before


def test_models_that_cannot_be_used(hospitals: Path, capsys: Capture) -> None:
    assert complaint_here(capsys, "predict", "runs", "later.csv") == (
        "runs does not exist; give the folder of a finished 'fedminmax train'"
    )
    run_here("train", write_config(hospitals, method="rounds = 2"))
    model = Path("runs/fedminmax/model.safetensors")
    with safe_open(model, framework="pt") as file:
        metadata = file.metadata()
    save_file(load_file(model), model, metadata | {"format": "2"})
    words = ["predict", "runs/fedminmax", "later.csv"]
    assert complaint_here(capsys, *words) == (
        "runs/fedminmax/model.safetensors has format 2, this version reads format 1; use the "
        "version of fedminmax that wrote it, or train again"
    )
    model.write_bytes(model.read_bytes()[:100])
    assert "is not a model file or is damaged; train again" in complaint_here(capsys, *words)
    assert not Path("predictions.csv").exists()


def test_results_of_another_version_damaged_ones_and_unfinished_runs(
    hospitals: Path, capsys: Capture
) -> None:
    assert "runs is not a folder; give a run folder" in complaint_here(capsys, "evaluate", "runs")
    run_here("train", write_config(hospitals, method="rounds = 2"))
    path = Path("runs/fedminmax/results.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 2}))
    assert "has format 2, this version reads format 1" in complaint_here(
        capsys, "evaluate", "runs/fedminmax"
    )
    path.write_text('{"format": 1}')
    advice = "remove it, and run 'fedminmax train' again"
    for words in (["evaluate", "runs/fedminmax"], ["train", "fedminmax.toml"]):
        assert complaint_here(capsys, *words) == (
            f"{path} is damaged (method Field required); {advice}"
        )
    assert path.read_text() == '{"format": 1}'
    path.unlink()
    assert "has no finished run; run 'fedminmax train' again" in complaint_here(
        capsys, "evaluate", "runs/fedminmax"
    )


def test_nothing_is_overwritten(hospitals: Path, capsys: Capture) -> None:
    run_here("train", write_config(hospitals, method="rounds = 2"))
    for name, words in {
        "predictions.csv": ["predict", "runs/fedminmax", "later.csv"],
        "model.onnx": ["export", "runs/fedminmax", "--onnx", "model.onnx"],
    }.items():
        Path(name).write_text("mine")
        assert f"{name} already exists; give another" in complaint_here(capsys, *words)
        assert Path(name).read_text() == "mine"
        run_here(*words, "--force")
        assert Path(name).read_bytes() != b"mine"
    rows = Path("later.csv").read_bytes()
    words = ["predict", "runs/fedminmax", "later.csv", "--out", "later.csv", "--force"]
    assert "later.csv is the file with the rows to predict" in complaint_here(capsys, *words)
    assert Path("later.csv").read_bytes() == rows
    words = ["predict", "runs/fedminmax", "later.csv", "--out", "north.csv/deep/x.csv"]
    assert complaint_here(capsys, *words) == (
        "north.csv is a file, not a folder for x.csv; give another --out"
    )


def test_a_feature_is_missing_in_the_rows_to_predict(hospitals: Path, capsys: Capture) -> None:
    run_here("train", write_config(hospitals, method="rounds = 2"))
    pl.read_csv("later.csv").drop("dose").write_csv("later.csv")
    assert complaint_here(capsys, "predict", "runs/fedminmax", "later.csv").startswith(
        "later.csv (80 rows) has no column 'dose', which is a feature; there is "
    )
