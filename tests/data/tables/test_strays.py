"""One typo in a column of zeros and ones does not turn classes into quantities in silence."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fedminmax.config.read import read_config
from tests.cli.command import fedminmax
from tests.data.tables.clinics import INIT, Change, write_clinics


def zeros_and_ones(column: str, typo: str) -> Change:
    def change(name: str, frame: pl.DataFrame) -> pl.DataFrame:
        first = pl.col(column) == frame[column][0]
        codes = frame.select(pl.when(first).then(pl.lit("1")).otherwise(pl.lit("0")))
        values = codes.to_series().to_list()
        if name == "south":
            values[16] = typo
        return frame.with_columns(pl.Series(column, values))

    return change


@pytest.mark.parametrize("typo", ["0.5", "0.1", "10.5"])
def test_a_target_with_a_typo_is_refused_with_its_row_and_the_task_is_asked_for(
    tmp_path: Path, typo: str
) -> None:
    write_clinics(tmp_path, zeros_and_ones("state", typo))
    done = fedminmax(*INIT, cwd=tmp_path)
    assert done.returncode == 2
    assert "target 'state' is 0 or 1 in 599 of 600 rows" in done.stderr
    assert "south.csv row 17" in done.stderr
    assert "--task regression" in done.stderr
    assert not (tmp_path / "fedminmax.toml").exists()


def test_the_task_that_was_asked_for_is_taken(tmp_path: Path) -> None:
    write_clinics(tmp_path, zeros_and_ones("state", "0.5"))
    assert fedminmax(*INIT, "--task", "regression", cwd=tmp_path).returncode == 0
    assert read_config(tmp_path / "fedminmax.toml").schema.target.is_quantity
    words = [*INIT, "--task", "classification", "--force"]
    assert fedminmax(*words, cwd=tmp_path).returncode == 0
    assert read_config(tmp_path / "fedminmax.toml").schema.target.classes == ("0", "0.5", "1")


def test_a_group_column_with_a_typo_is_no_quantity_in_bands(tmp_path: Path) -> None:
    write_clinics(tmp_path, zeros_and_ones("sex", "0.5"))
    done = fedminmax(*INIT, cwd=tmp_path)
    assert done.returncode == 2
    assert "group column 'sex' is 0 or 1 in 599 of 600 rows" in done.stderr


def test_a_class_that_hardly_occurs_is_named_with_its_row(tmp_path: Path) -> None:
    def change(name: str, frame: pl.DataFrame) -> pl.DataFrame:
        typo = pl.Series(np.arange(len(frame)) == 4) & pl.Series([name == "west"] * len(frame))
        return frame.with_columns(state=pl.when(typo).then(pl.lit("wel")).otherwise("state"))

    write_clinics(tmp_path, change)
    done = fedminmax(*INIT, cwd=tmp_path)
    assert done.returncode == 0
    assert "class 'wel' has 1 row (west.csv row 5): if it is a typo, correct it" in done.stdout


def test_a_quantity_with_many_zeros_stays_one(tmp_path: Path) -> None:
    def change(name: str, frame: pl.DataFrame) -> pl.DataFrame:
        generator = np.random.default_rng(len(name))
        cost = np.where(generator.random(len(frame)) < 0.97, 0.0, generator.normal(size=len(frame)))
        return frame.with_columns(state=pl.Series(cost))

    write_clinics(tmp_path, change)
    assert fedminmax(*INIT, cwd=tmp_path).returncode == 0
    assert read_config(tmp_path / "fedminmax.toml").schema.target.is_quantity


def test_the_positive_class_is_named_and_can_be_chosen(tmp_path: Path) -> None:
    write_clinics(tmp_path)
    assert "'well' is the positive class" in fedminmax(*INIT, cwd=tmp_path).stdout
    done = fedminmax(*INIT, "--positive", "ill", "--force", cwd=tmp_path)
    assert "'ill' is the positive class" in done.stdout
    assert read_config(tmp_path / "fedminmax.toml").schema.target.classes == ("well", "ill")
    refused = fedminmax(*INIT, "--positive", "sick", "--force", cwd=tmp_path)
    assert refused.returncode == 2
    assert "--positive sick: target 'state' has 'ill', 'well'; name one of two classes" in (
        refused.stderr
    )
