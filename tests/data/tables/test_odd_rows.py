"""Codes such as 999 that mean missing are named with the line that says so; rows never travel."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fedminmax.config.read import read_config
from fedminmax.data.tables.load import FederatedTables, load_federated_tables
from fedminmax.data.tables.odd_rows import codes_for_missing
from tests.cli.command import fedminmax
from tests.data.tables.clinics import INIT, Change, write_clinics


def coded(column: str, code: float, every: int) -> Change:
    def change(_: str, frame: pl.DataFrame) -> pl.DataFrame:
        chosen = pl.Series(np.arange(len(frame)) % every == 0)
        return frame.with_columns(
            pl.when(chosen).then(pl.lit(code)).otherwise(column).alias(column)
        )

    return change


def load(folder: Path, section: str = "", more: str = "") -> FederatedTables:
    path = folder / "fedminmax.toml"
    if section:
        path.write_text(path.read_text().replace(section, f"{section}\n{more}", 1))
    return load_federated_tables(read_config(path))


@pytest.mark.parametrize(
    ("column", "code", "every"),
    [("age", 999, 13), ("age", -1, 20), ("dose", -99, 20), ("dose", 9999, 40)],
)
def test_a_code_for_missing_is_named_and_the_line_makes_it_missing(
    tmp_path: Path, column: str, code: int, every: int
) -> None:
    write_clinics(tmp_path, coded(column, code, every))
    done = fedminmax(*INIT, cwd=tmp_path)
    assert done.returncode == 0
    assert f"'{column}' is {code} in" in done.stderr
    assert done.stderr.count(f'(missing_values = ["{code}"] in [features.{column}])') == 1
    assert done.stderr.count("\n") == 1
    before = load(tmp_path)
    assert not any(str(code) in warning for warning in before.kept_warnings)
    assert any(f"'{column}'" in warning for warning in before.kept_warnings)
    after = load(tmp_path, f"[features.{column}]", f'missing_values = ["{code}"]')
    assert after.warnings == ()
    assert f"{column} is missing" in after.encoding.names
    # The mean and deviation are those of the other rows.
    write_clinics(tmp_path)
    clean = load(tmp_path)
    found, expected = (tables.summary.quantities[column] for tables in (after, clean))
    assert found.mean == pytest.approx(expected.mean, rel=0.03)
    assert found.deviation == pytest.approx(expected.deviation, rel=0.05)


def test_ordinary_columns_have_no_codes() -> None:
    generator = np.random.default_rng(0)
    ordinary = {
        "age": generator.integers(18, 91, 3000).astype(float),
        "hours": np.append(generator.integers(1, 98, 3000), np.full(30, 99)).astype(float),
        "normal": generator.normal(size=3000),
        "lognormal": generator.lognormal(sigma=2, size=3000).round(2),
        "often zero": np.where(generator.random(3000) < 0.9, 0, generator.gamma(2, 900, 3000)),
        "count": generator.poisson(3.0, 3000).astype(float),
        "two values": generator.choice([0.0, 1.0], 3000),
        "rare": np.append(generator.normal(size=3000), [999.0]),
    }
    assert {name: codes_for_missing(own) for name, own in ordinary.items()} == {
        name: [] for name in ordinary
    }


def test_two_codes_beside_each_other() -> None:
    values = np.array([*range(18, 90), *[998.0] * 10, *[999.0] * 10])
    assert codes_for_missing(values) == [998.0, 999.0]
