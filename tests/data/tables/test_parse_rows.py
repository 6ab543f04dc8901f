"""Columns read by kind, alike from text and typed files; misfits by file, column and first row.

Codes such as 999 that mean missing are named with the line that says so; rows never travel.
"""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fedminmax.config.read import read_config
from fedminmax.config.schema import Feature, Kind, Protected, Schema, Target
from fedminmax.data.tables.load import FederatedTables, load_federated_tables
from fedminmax.data.tables.odd_rows import codes_for_missing, shown_here
from fedminmax.data.tables.parse_rows import FeatureRows, ParsedRows, parse_features, parse_rows
from fedminmax.data.tables.read_file import read_table
from tests.cli.command import fedminmax
from tests.complaints import complaint_of
from tests.data.tables.clinics import INIT, Change, write_clinics
from tests.data.tables.small_tables import SCHEMA, table_of

ROWS: dict[str, Sequence[object]] = {
    "age": ["30", "?", " 50 "],
    "ward": ["a", "", "d"],
    "smoker": ["Yes", "0", "NA"],
    "sex": ["Female", "Male", "Male"],
    "ill": [" no", "yes", " no"],
}


def parsed(**changes: Sequence[object]) -> ParsedRows:
    return parse_rows(table_of(ROWS | changes), SCHEMA)


def said(**changes: Sequence[object]) -> str:
    return complaint_of(lambda: parsed(**changes))


def features_of(feature: Feature, values: Sequence[object]) -> FeatureRows:
    schema = Schema(Target("y"), (feature,), (), missing_values=("", "-999"))
    return parse_features(table_of({feature.column: values}), schema)


def test_all_columns_of_a_table() -> None:
    rows = parsed()
    assert rows.features.quantities["age"].tolist() == pytest.approx([30, np.nan, 50], nan_ok=True)
    smoker = rows.features.quantities["smoker"].tolist()
    assert smoker == pytest.approx([1, 0, np.nan], nan_ok=True)
    assert rows.features.codes["ward"].tolist() == [0, 3, 4]  # a, missing, not listed
    assert rows.target.tolist() == [0, 1, 0]
    assert [rows.group_keys[place] for place in rows.group] == [("Female",), ("Male",), ("Male",)]


def test_a_category_that_is_not_listed_is_counted_in_a_warning() -> None:
    (warning,) = shown_here(parsed().features.odd)
    assert warning == (
        "values that are not among their categories, and are ignored: 'ward' in 1 row of "
        "north.csv (first: row 3)"
    )


def test_text_and_typed_files_read_alike(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {
            "age": [30, None, 50],
            "ward": [1.0, None, 2.0],  # whole numbers that gaps have made floats
            "smoker": [True, False, None],
            "sex": pl.Series(["Female", "Male", "Male"], dtype=pl.Categorical),
            "ill": [False, True, True],
        }
    )
    schema = Schema(
        Target("ill", ("false", "true")),
        (SCHEMA.features[0], Feature("ward", Kind.CATEGORY, ("1", "2")), SCHEMA.features[2]),
        SCHEMA.protected,
    )
    frame.write_parquet(tmp_path / "a.parquet")
    frame.with_columns(pl.col("ward").cast(pl.Int64)).write_csv(tmp_path / "a.csv")
    tables = [read_table(tmp_path / name, schema.columns) for name in ("a.parquet", "a.csv")]
    typed, text = (parse_rows(table, schema) for table in tables)
    for name in ("age", "smoker"):
        np.testing.assert_array_equal(
            typed.features.quantities[name], text.features.quantities[name]
        )
    assert (
        typed.features.codes["ward"].tolist() == text.features.codes["ward"].tolist() == [0, 2, 1]
    )
    assert typed.target.tolist() == text.target.tolist() == [0, 1, 1]
    assert [typed.group_keys[i] for i in typed.group] == [text.group_keys[i] for i in text.group]


@pytest.mark.parametrize(
    ("values", "days"),
    [
        (["1970-01-02", "2000-03-01"], [1.0, 11017.0]),
        (["1970-01-01T12:00:00Z", "1969-12-31 18:00"], [0.5, -0.25]),
        ([date(1970, 1, 2), None], [1.0, np.nan]),
        ([datetime(1970, 1, 1, 6, tzinfo=UTC)], [0.25]),
    ],
)
def test_dates_are_days_since_1970(values: Sequence[object], days: list[float]) -> None:
    rows = features_of(Feature("seen", Kind.DATE), values)
    assert rows.quantities["seen"].tolist() == pytest.approx(days, nan_ok=True)


def test_dates_in_a_format_of_their_own() -> None:
    rows = features_of(Feature("seen", Kind.DATE, date_format="%d/%m/%Y"), ["02/01/1970"])
    assert rows.quantities["seen"].tolist() == [1.0]


def test_a_number_that_stands_for_missing_does_so_in_typed_files_too() -> None:
    for values in (["5", "-999"], [5, -999], [5.0, -999.0], ["5", "-999.0"]):
        rows = features_of(Feature("dose", Kind.NUMERIC), values)
        assert rows.quantities["dose"].tolist() == pytest.approx([5, np.nan], nan_ok=True)


def test_text_in_a_numeric_column() -> None:
    assert said(age=["30", "forty", "old"]) == (
        "north.csv (3 rows): column 'age', row 2: 'forty' is not a number; correct it, add it to "
        'missing_values in [data], or write kind = "category" in [features.age]'
    )


def test_an_infinite_number() -> None:
    assert said(age=["30", "40", "inf"]).startswith(
        "north.csv (3 rows): column 'age', row 3 is infinite; correct it"
    )


def test_neither_true_nor_false() -> None:
    assert said(smoker=["yes", "no", "sometimes"]) == (
        "north.csv (3 rows): column 'smoker', row 3: 'sometimes' is not true or false, yes or no, "
        '1 or 0; correct it, add it to missing_values in [data], or write kind = "category" in '
        "[features.smoker]"
    )


def test_no_date() -> None:
    feature = Feature("day seen", Kind.DATE)
    assert complaint_of(lambda: features_of(feature, ["2020-02-30"])) == (
        "north.csv (1 row): column 'day seen', row 1: '2020-02-30' is not a date such as "
        "2024-12-31; correct it, add it to missing_values in [data], or give its format in "
        '[features."day seen"]'
    )


def test_a_class_that_is_not_listed() -> None:
    assert said(ill=["no", "yes", "maybe"]) == (
        "north.csv (3 rows): target 'ill', row 3: 'maybe' is not a class; expected 'no', 'yes'; "
        "correct it, or add it to classes in [data]"
    )


def test_a_missing_target() -> None:
    assert said(ill=["no", "", "?"]) == (
        "north.csv (3 rows): target 'ill', row 2 is missing (2 such rows); remove rows without a "
        "target"
    )


def test_text_in_a_target_that_is_a_quantity() -> None:
    schema = Schema(Target("age"), SCHEMA.features[1:], SCHEMA.protected)
    table = table_of(ROWS | {"age": ["30", "40", "old"]})
    assert complaint_of(lambda: parse_rows(table, schema)) == (
        "north.csv (3 rows): column 'age', row 3: 'old' is not a number; correct it, or set "
        'task = "classification" in [data]'
    )


def test_a_column_that_the_file_lacks() -> None:
    table = table_of({name: values for name, values in ROWS.items() if name != "smoker"})
    assert complaint_of(lambda: parse_rows(table, SCHEMA)) == (
        "north.csv (3 rows) has no column 'smoker', which the configuration names; there is "
        "'age', 'ward', 'sex', 'ill'"
    )


def test_a_prediction_needs_the_features_alone() -> None:
    table = table_of({name: ROWS[name] for name in ("age", "ward", "smoker")})
    assert parse_features(table, SCHEMA).count == 3


def test_a_banded_column_with_text() -> None:
    schema = Schema(SCHEMA.target, SCHEMA.features[1:], (Protected("age", (40.0,)),))
    table = table_of(ROWS | {"age": ["30", "40", "old"]})
    assert complaint_of(lambda: parse_rows(table, schema)) == (
        "north.csv (3 rows): column 'age', row 3: 'old' is not a number; correct it, or remove age "
        "from [groups.bands]"
    )


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
