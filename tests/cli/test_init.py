"""`fedminmax init`: what it writes can be loaded as it stands, and what it refuses.

No value of a row is in a file that is handed on, but for categories that were agreed on.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fedminmax.config.read import read_config
from fedminmax.config.schema import PROPOSED_MISSING_VALUES, Feature, Kind, Protected
from fedminmax.data.tables.load import load_federated_tables
from tests.cli.command import complaint, complaint_here, fedminmax, run_here
from tests.cli.hospitals import write_hospitals
from tests.cli.kits import DESCRIBED
from tests.data.tables.small_tables import SCHEMA, write_files

WORDS = ["init", "north.csv", "south.csv", "--target", "ill", "--groups", "sex"]
POSITIVE = (
    "'yes' is the positive class, which rates are about; for the other one give --positive no, or "
    "write it as positive in [data]"
)
ANY_SIZE = ["--minimum-category", "1"]


def test_files_become_a_configuration_that_loads(tmp_path: Path) -> None:
    write_files(tmp_path)
    done = fedminmax(*WORDS, *ANY_SIZE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "fedminmax.toml: 2 sites, 8 rows, target 'ill' (2 classes), 3 features, groups by sex",
        POSITIVE,
        "Review fedminmax.toml. Next:",
        "  fedminmax advise fedminmax.toml    what to expect",
        "  fedminmax train fedminmax.toml",
    ]
    config = read_config(tmp_path / "fedminmax.toml")
    listed = (Protected("sex", values=("Female", "Male")),)
    assert config.schema == replace(
        SCHEMA, protected=listed, missing_values=PROPOSED_MISSING_VALUES
    )
    assert config.held_out == 0.2
    assert load_federated_tables(config).sites == ("north", "south")


def test_crossed_groups_bands_odd_names_and_typed_files(tmp_path: Path) -> None:
    rows = 60
    frame = pl.DataFrame(
        {
            "patient id": range(rows),
            'the "ward"': ["a", "b"] * (rows // 2),
            "age": [20 + n for n in range(rows)],
            "sex": ["Female", "Male", "Male"] * (rows // 3),
            "notes": [f"note {n}" for n in range(rows)],
            "site": ["s1"] * rows,
            "hospital": ["east", "west"] * (rows // 2),
            "cost": [n * 1.5 for n in range(rows)],
        }
    )
    (tmp_path / "data").mkdir()
    frame.write_parquet(tmp_path / "data" / "all.parquet")
    words = ["--target", "cost", "--groups", "sex, age", "--site-column", "hospital"]
    out = ["--out", "runs/mine.toml"]
    done = fedminmax("init", "data/all.parquet", *words, *out, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "2 sites, 60 rows, target 'cost' (regression), 1 feature," in done.stdout
    assert "column 'patient id' is skipped: it only identifies rows" in done.stdout
    assert "column 'notes' is skipped: it has 60 different texts" in done.stdout
    assert "column 'site' is skipped: it is the same in every row" in done.stdout
    text = (tmp_path / "runs" / "mine.toml").read_text()
    assert '[features."patient id"] is skipped' in text
    config = read_config(tmp_path / "runs" / "mine.toml")
    sex = Protected("sex", values=("Female", "Male"))
    assert config.schema.protected == (sex, Protected("age", (30.0, 45.0, 60.0)))
    assert config.schema.features == (Feature('the "ward"', Kind.CATEGORY, ("a", "b")),)
    tables = load_federated_tables(config)
    assert tables.sites == ("east", "west")
    assert tables.group_names[0] == "Female / age under 30"


def test_a_configuration_is_not_overwritten(tmp_path: Path) -> None:
    write_files(tmp_path)
    (tmp_path / "fedminmax.toml").write_text("mine")
    assert complaint(*WORDS, cwd=tmp_path) == (
        "fedminmax: error: fedminmax.toml already exists; give another --out, or --force to "
        "replace it\n"
    )
    assert (tmp_path / "fedminmax.toml").read_text() == "mine"


def test_a_mistake_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    write_files(tmp_path)
    words = ["init", "west.csv", "--target", "ill", "--groups", "sex"]
    assert complaint(*words, cwd=tmp_path) == (
        "fedminmax: error: west.csv does not exist or is not a file; correct the path\n"
    )
    assert not (tmp_path / "fedminmax.toml").exists()


def test_an_empty_group_name(tmp_path: Path) -> None:
    words = ["init", "north.csv", "--target", "ill", "--groups", "sex,"]
    assert "'sex,' has an empty name; remove the comma" in complaint(*words, cwd=tmp_path)


def test_a_table_from_an_office_program_from_files_to_predictions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_hospitals(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name in ("south", "later"):
        text = Path(f"{name}.csv").read_text().replace(",", ";").replace(".", ",")
        Path(f"{name}.csv").write_text(text)
    run_here("init", "north.csv", "south.csv", "--target", "ill", "--groups", "sex")
    said = capsys.readouterr().out
    assert 'south.csv is read with decimal = ","; if that is wrong, correct fedminmax.toml' in said
    run_here("train", "fedminmax.toml", "--rounds", 2)
    said = complaint_here(capsys, "predict", "runs/fedminmax", "later.csv")
    assert 'set decimal = "," in [data]' in said
    run_here("predict", "runs/fedminmax", "later.csv", "--decimal", ",")
    run_here("evaluate", "runs/fedminmax", "south.csv", "--decimal", ",")
    assert pl.read_csv("predictions.csv")["predicted"].n_unique() == 2


ROWS = 120
# Each stands in few rows: a name, a case number, a rare category, a rare group, a constant, a slip
# among numbers, the ends of a range.
MARKERS = ("Zaphodson", "CASE-99", "Rarecomplaint", "Raregroup", "Sameforall", "Oddtext", "987123")


def write_markers(folder: Path) -> None:
    """Two sites whose tables have values that must not be in any other file."""
    for place, site in enumerate(("north", "south")):
        generator = np.random.default_rng(place)
        dose = generator.normal(size=ROWS)
        frame = pl.DataFrame(
            {
                "sex": generator.choice(["Female", "Male"], ROWS),
                "origin": ["Raregroup", *generator.choice(["a", "b"], ROWS - 1).tolist()],
                "dose": dose,
                "ward": [*generator.choice(["east", "west"], ROWS - 1).tolist(), "Rarecomplaint"],
                "name": [f"Zaphodson {place} {number}" for number in range(ROWS)],
                "case": [f"CASE-99{number}-{place}" for number in range(ROWS)],
                "few cases": ["CASE-99"] + ["?"] * (ROWS - 1),
                "constant": ["Sameforall"] * ROWS,
                "height": [*map(str, range(100, 99 + ROWS)), "Oddtext"],
                "income": [987123, *range(20_000, 20_000 + ROWS - 1)],
                "ill": np.where(generator.random(ROWS) < 1 / (1 + np.exp(-dose)), "yes", "no"),
            }
        )
        frame.write_csv(folder / f"{site}.csv")


def leaks(folder: Path) -> list[str]:
    """Where a marker is found, tables themselves aside."""
    return [
        f"{marker} in {path.relative_to(folder)}"
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.parent != folder / "tables"
        for marker in MARKERS
        if marker.encode() in path.read_bytes()
    ]


def test_nothing_that_init_train_report_and_kits_write_has_a_value_of_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tables").mkdir()
    write_markers(tmp_path / "tables")
    monkeypatch.chdir(tmp_path)
    files = ["tables/north.csv", "tables/south.csv"]
    run_here("init", *files, "--target", "ill", "--groups", "sex,origin")
    said = capsys.readouterr().out
    assert not [marker for marker in MARKERS if marker in said]
    assert "column 'name' is skipped: it has 240 different texts" in said
    assert "column 'constant' is skipped: it is the same in every row" in said
    assert "column 'few cases' is skipped: it has no category with at least 10 rows" in said
    assert "column 'ward': 1 category with fewer than 10 rows (2 rows in all) is skipped" in said
    assert "group column 'origin': 1 value with fewer than 10 rows (2 rows in all)" in said
    # What is no number is for the user to correct.
    config = tmp_path / "fedminmax.toml"
    text = config.read_text()
    assert "values that are not numbers: 1 of them in 2 rows" in text
    config.write_text(text.replace('[features.height]\nkind = "numeric"', ""))
    run_here("train", "fedminmax.toml", "--rounds", 3)
    run_here("evaluate", "runs/fedminmax", "tables/south.csv")
    run_here("report", "runs/fedminmax")
    (tmp_path / "federation.toml").write_text(DESCRIBED)
    run_here("federation", "create", "federation.toml", "--config", config, "--out", "kits")
    assert (tmp_path / "kits/sites/north/fedminmax.toml").read_text() == config.read_text()
    assert leaks(tmp_path) == []


def test_ranges_are_written_only_if_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_markers(tmp_path)
    monkeypatch.chdir(tmp_path)
    run_here("init", "north.csv", "--target", "ill", "--groups", "sex", "--ranges")
    assert "# from 20000 to 987123\n[features.income]" in Path("fedminmax.toml").read_text()
