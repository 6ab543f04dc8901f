"""Files that are not what they were, or are read in another format: nothing is silently wrong."""

import json
from pathlib import Path

import polars as pl
import pytest

from tests.cli.command import complaint_here, run_here
from tests.cli.hospitals import results_of, write_config, write_hospitals
from tests.cli.kits import SETTINGS, check, create
from tests.network.network_problem import write_tables

Capture = pytest.CaptureFixture[str]
RUN = Path("runs", "fedminmax")
GERMAN_NORTH = '[data.formats.north]\ndecimal = ","\n[groups]'


@pytest.fixture
def hospitals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_hospitals(tmp_path)
    return tmp_path


def write_with_commas(path: Path, column: str, to: Path) -> None:
    """Write a file with semicolons, and with commas in the numbers of one column."""
    frame = pl.read_csv(path, infer_schema=False)
    frame = frame.with_columns(pl.col(column).str.replace(".", ",", literal=True))
    frame.write_csv(to, separator=";")


def german_north(hospitals: Path) -> Path:
    """Write a configuration in which one of three files has commas in its numbers."""
    write_with_commas(hospitals / "north.csv", "dose", hospitals / "north.csv")
    config = write_config(hospitals)
    config.write_text(config.read_text().replace("[groups]", GERMAN_NORTH))
    return config


@pytest.mark.parametrize(("column", "change"), [("age", 1024.0), ("age", 0.0)])
def test_a_table_in_another_unit_is_another_table(
    column: str, change: float, hospitals: Path, capsys: Capture
) -> None:
    """In deviations from the mean, its numbers are the same."""
    config = write_config(hospitals)
    run_here("train", config)
    capsys.readouterr()
    run_here("train", config)
    assert "runs/fedminmax is finished: nothing is trained again" in capsys.readouterr().err
    for name in ("north", "south", "west"):
        path = hospitals / f"{name}.csv"
        own = pl.col(column) + change if change else pl.col(column) * 1000
        pl.read_csv(path).with_columns(own).write_csv(path)
    error = complaint_here(capsys, "train", config)
    assert "digest" in error
    assert "another digest means other rows or another encoding" in error


def test_a_sites_format_is_used_for_its_files(hospitals: Path, capsys: Capture) -> None:
    """The same rows, in the format of one site, of the others, and of none that is named."""
    plain = hospitals / "plain.csv"
    plain.write_bytes((hospitals / "north.csv").read_bytes())
    config = german_north(hospitals)
    run_here("train", config)
    found = {}
    for name, file, options in (
        ("plain", plain, ()),
        ("north", hospitals / "north.csv", ()),
        ("told", hospitals / "north.csv", ("--decimal", ",")),
    ):
        capsys.readouterr()
        run_here("evaluate", RUN, file, *options, "--json")
        said = capsys.readouterr()
        found[name] = json.loads(said.out)["test"]
        if name == "plain":
            assert "files of 'north' have another one" in said.err
        else:
            assert "read in the format of site 'north'" in said.err
        run_here("predict", RUN, file, "--out", f"{name}.out.csv", *options)
    assert found["plain"] == found["north"] == found["told"]
    assert Path("plain.out.csv").read_text() == Path("north.out.csv").read_text()


def test_files_of_one_name_have_the_format_of_none(hospitals: Path, capsys: Capture) -> None:
    """Only a name that belongs to one site says whose format it is."""
    for name in ("north", "south"):
        (hospitals / name).mkdir()
        (hospitals / f"{name}.csv").rename(hospitals / name / "data.csv")
    config = write_config(
        hospitals,
        sites={"north": "north/data.csv", "south": "south/data.csv", "west": "west.csv"},
    )
    write_with_commas(Path("north/data.csv"), "dose", Path("north/data.csv"))
    config.write_text(config.read_text().replace("[groups]", GERMAN_NORTH))
    run_here("train", config)
    capsys.readouterr()
    run_here("evaluate", RUN, "south/data.csv", "--json")
    assert "files of 'north' have another one" in capsys.readouterr().err
    run_here("evaluate", RUN, "west.csv", "--json")
    assert capsys.readouterr().err == ""


def test_a_site_reads_its_table_in_the_agreed_format(tmp_path: Path, capsys: Capture) -> None:
    create(tmp_path)
    config = write_tables(tmp_path)
    table = pl.read_csv(tmp_path / "north.csv").with_columns(age=pl.col("age") + 0.125)
    table.write_csv(tmp_path / "north.csv")
    write_with_commas(tmp_path / "north.csv", "age", tmp_path / "north.csv")
    text = config.read_text().replace("[groups]", GERMAN_NORTH)
    config.write_text(text.replace("[groups]", 'thousands = ""\n[groups]'))
    assert check(tmp_path, config=config) == 0
    assert "the table is read with decimal ','" in capsys.readouterr().out
    noted = json.loads((tmp_path / SETTINGS).read_text())
    assert noted["agreed_format"]["decimal"] == ","
    # What the configuration says is read again at each check.
    config.write_text(config.read_text().replace(GERMAN_NORTH.splitlines()[1], 'decimal = "."'))
    assert check(tmp_path, config=config) == 2
    assert "is not a number" in capsys.readouterr().err


def test_rows_are_not_tested_on_that_were_trained_on(hospitals: Path, capsys: Capture) -> None:
    config = write_config(hospitals, data="held_out = 0")
    config.write_text(
        config.read_text().replace("[groups]", '[data.test]\nn = "north.csv"\n[groups]')
    )
    error = complaint_here(capsys, "train", config)
    assert "[data.test] north.csv is also trained on by site 'north'; give rows" in error


def test_rows_that_training_would_skip_are_counted(hospitals: Path, capsys: Capture) -> None:
    config = write_config(hospitals)
    rule = 'columns = ["sex"]\nmissing = "leave_out"'
    config.write_text(config.read_text().replace('columns = ["sex"]', rule))
    run_here("train", config)
    later = pl.read_csv(hospitals / "later.csv")
    sex = pl.when(pl.int_range(pl.len()) < 7).then(pl.lit("")).otherwise("sex")
    later.with_columns(sex=sex).write_csv(hospitals / "later.csv")
    capsys.readouterr()
    run_here("evaluate", RUN, hospitals / "later.csv", "--json")
    said = capsys.readouterr()
    assert json.loads(said.out)["test"]["rows"] == len(later) - 7
    assert "7 rows are skipped, as in training" in said.err


def test_rows_in_another_unit_than_in_training_are_told(hospitals: Path, capsys: Capture) -> None:
    run_here("train", write_config(hospitals))
    later = pl.read_csv(hospitals / "later.csv")
    later.with_columns(pl.col("age") * 1000).write_csv(hospitals / "thousands.csv")
    told = "for which the model was not made: 'age' in 80 of 80 rows; check units"
    for file, words in (("later.csv", ""), ("thousands.csv", told)):
        for command in (
            ("evaluate", RUN, file),
            ("predict", RUN, file, "--out", f"{file}.out.csv"),
        ):
            capsys.readouterr()
            run_here(*command)
            error = capsys.readouterr().err
            assert words in error
            assert bool(error) == bool(words)


def test_one_value_far_from_training_and_missing_ones_are_counted(
    hospitals: Path, capsys: Capture
) -> None:
    run_here("train", write_config(hospitals))
    later = pl.read_csv(hospitals / "later.csv")
    places = pl.Series(range(len(later)))
    odd = later.with_columns(
        age=pl.when(places == 3).then(1_000_000).otherwise("age"),
        dose=pl.when(places < 30).then(None).otherwise("dose"),
    )
    odd.write_csv(hospitals / "odd.csv")
    capsys.readouterr()
    run_here("predict", RUN, "odd.csv", "--out", "odd.out.csv")
    error = capsys.readouterr().err
    assert "for which the model was not made: 'age' in 1 of 80 rows" in error
    assert "missing values: 'dose' in 30 of 80 rows" in error


def test_the_class_that_rates_are_about_is_named(hospitals: Path, capsys: Capture) -> None:
    run_here("train", write_config(hospitals))
    capsys.readouterr()
    run_here("evaluate", RUN)
    out, card = " ".join(capsys.readouterr().out.split()), (RUN / "model_card.md").read_text()
    for rate in ("selection rate", "false positive rate", "false negative rate", "calibration"):
        assert f"{rate} of “yes”" in card
    assert "calibration of “yes”" in out
    run_here("evaluate", RUN, "--json")
    assert json.loads(capsys.readouterr().out)["positive_class"] == "yes"
    assert len(results_of(RUN)["classes"]) == 2
    run_here("report", RUN)
    assert "One process read all files." in (RUN / "report.html").read_text()


@pytest.mark.parametrize("inside", ["notes.txt", None])
def test_only_an_mlflow_model_is_replaced(
    inside: str | None, hospitals: Path, capsys: Capture
) -> None:
    run_here("train", write_config(hospitals))
    folder = Path("precious") if inside else RUN
    folder.mkdir(exist_ok=True)
    if inside:
        (folder / inside).write_text("mine")
    before = sorted(folder.rglob("*"))
    error = complaint_here(capsys, "export", RUN, "--mlflow-model", folder, "--force")
    assert "is not an MLflow model" in error
    assert sorted(folder.rglob("*")) == before
    run_here("export", RUN, "--mlflow-model", "model")
    run_here("export", RUN, "--mlflow-model", "model", "--force")
    assert Path("model", "MLmodel").is_file()
