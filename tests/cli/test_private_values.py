"""No value of a row is in a file that is handed on, but for categories that were agreed on."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.cli.in_process import run_here
from tests.cli.kits import DESCRIBED

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
