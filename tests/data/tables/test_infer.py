"""First guesses about columns, and sizes that leave only noise.

Columns that a new user's files have: codes, indices, weights, units, odd dates, zones.

One typo in a column of zeros and ones does not turn classes into quantities in silence.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest

from fedminmax.config.read import read_config
from fedminmax.config.schema import Feature, Kind, Protected
from fedminmax.data.tables.infer import Rare, Stated, guess_feature, guess_protected, guess_target
from fedminmax.data.tables.load import load_federated_tables
from fedminmax.data.tables.parse_columns import numbers_in
from tests.cli.command import fedminmax
from tests.data.tables.clinics import CLINICS, INIT, Change, draw_clinic, write_clinics

SPREAD = [str(n) for n in range(18, 90)]


def column(values: list[str | None], name: str = "x") -> pl.Series:
    return pl.Series(name, values, dtype=pl.String)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "2.5", "-3e2", None], Kind.NUMERIC),
        (["0", "1", "1"], Kind.BOOLEAN),
        (["Yes", "no"], Kind.BOOLEAN),
        (["yes", None], Kind.BOOLEAN),
        (["2020-01-31", "2020-01-31T10:00"], Kind.DATE),
    ],
)
def test_kinds(values: list[str | None], kind: Kind) -> None:
    assert guess_feature(column(values), Stated(1)).feature == Feature("x", kind)


def test_other_texts_are_categories_in_alphabetical_order() -> None:
    guess = guess_feature(column(["b", "a", "10", "b", None]), Stated(1))
    assert guess.feature == Feature("x", Kind.CATEGORY, ("10", "a", "b"))


@pytest.mark.parametrize(
    ("values", "remark"),
    [
        ([None, None], "has no values"),
        (["u", "u"], "is the same in every row"),
        ([f"p{n}" for n in range(51)], "has 51 different texts, too many for categories"),
    ],
)
def test_columns_that_are_no_features(values: list[str | None], remark: str) -> None:
    guess = guess_feature(column(values), Stated(1))
    assert guess.feature is None
    assert guess.remark == remark


@pytest.mark.parametrize("odd", ["old", "inf"])
def test_a_slip_among_many_numbers_leaves_them_numbers(odd: str) -> None:
    guess = guess_feature(column([*SPREAD, odd]), Stated(1))
    assert guess.feature == Feature("x", Kind.NUMERIC)
    assert "not numbers: 1 of them in 1 row. Correct them" in guess.remark
    assert odd not in guess.remark
    assert guess.limits == (18.0, 89.0)


@pytest.mark.parametrize(("name", "values"), [("x", SPREAD), ("patient_ID", ["7", "7", "8"])])
def test_what_may_be_an_identifier_gets_a_remark(name: str, values: list[str | None]) -> None:
    assert "identify" in guess_feature(column(values, name), Stated(1)).remark
    assert guess_feature(column(["1", "2", "2"], "paid"), Stated(1)).remark == ""


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        (["yes", "no", "no"], ("no", "yes")),
        (["10", "9", "10"], ("9", "10")),
        ([str(n) for n in range(11)], ()),
        (["0.5", "1"], ()),
    ],
)
def test_targets(values: list[str | None], classes: tuple[str, ...]) -> None:
    assert guess_target(column(values)).classes == classes


@pytest.mark.parametrize(
    ("name", "values", "edges"),
    [
        ("age", SPREAD, (30.0, 45.0, 60.0)),
        ("Age at visit", [str(n) for n in range(20, 50)], (30.0, 45.0)),
        ("wage", [str(n) for n in range(101)], (25.0, 50.0, 75.0)),
        ("sex", ["F", "M"], ()),
        ("age code", ["1", "2", "3"], ()),
    ],
)
def test_bands(name: str, values: list[str | None], edges: tuple[float, ...]) -> None:
    protected, _ = guess_protected(column(values, name), 1)
    assert protected.edges == edges
    assert bool(protected.values) == (not edges)


def test_values_with_too_few_rows_are_counted_and_not_listed() -> None:
    values: list[str | None] = ["a", "b", "b", "c", "b", "c", None]
    guess = guess_feature(column(values), Stated(2))
    assert guess.feature == Feature("x", Kind.CATEGORY, ("b", "c"))
    assert guess.rare == Rare(values=1, rows=1)
    assert guess_protected(column(values), 3) == (Protected("x", values=("b",)), Rare(2, 3))
    assert guess_feature(column(values), Stated(4)).feature is None


ROWS = 200


def with_column(column: str, **values: Any) -> Change:
    """Add a column, with each clinic's values or the same for all."""

    def change(name: str, frame: pl.DataFrame) -> pl.DataFrame:
        own = values.get(name, values.get("every"))
        return frame.with_columns(pl.Series(column, own))

    return change


def draws(codes: list[str], seed: int = 0) -> list[str]:
    drawn: list[str] = np.random.default_rng(seed).choice(codes, ROWS).tolist()
    return drawn


@pytest.mark.parametrize(
    ("column", "codes"),
    [
        ("ZIP", ["10115", "01067", "80331"]),
        ("icd", ["250", "401", "786"]),
        ("marital_status", ["1", "2", "3", "4"]),
    ],
)
def test_codes_are_categories_until_the_user_corrects_one_word(
    tmp_path: Path, column: str, codes: list[str]
) -> None:
    write_clinics(tmp_path, with_column(column, every=draws(codes)))
    done = fedminmax(*INIT, cwd=tmp_path)
    assert f"column '{column}': {len(codes)} whole numbers that look like codes (" in done.stdout
    assert '): a category; if it is a quantity, write kind = "numeric"\n' in done.stdout
    path = tmp_path / "fedminmax.toml"
    (feature,) = load_federated_tables(read_config(path)).encoding.schema.features[3:]
    assert (feature.column, feature.categories) == (column, tuple(sorted(codes)))
    before, _, after = path.read_text(encoding="utf-8").partition(f"[features.{column}]\n")
    corrected = after.replace('"category"', '"numeric"', 1)
    path.write_text(f"{before}[features.{column}]\n{corrected}", encoding="utf-8")
    summary = load_federated_tables(read_config(path)).summary
    assert summary.quantities[column].count == summary.rows


def test_numbers_with_gaps_are_named_with_the_option_that_makes_them_categories(
    tmp_path: Path,
) -> None:
    codes = [str(10 + 11 * n * n) for n in range(30)]
    write_clinics(tmp_path, with_column("job", every=draws(codes)))
    told = "numbers that may be codes are read as quantities: 'job'; for codes give --category job"
    assert f"{told}\n" in fedminmax(*INIT, cwd=tmp_path).stdout
    words = [*INIT, "--category", "job", "--minimum-category", "1", "--force"]
    assert "may be codes" not in fedminmax(*words, cwd=tmp_path).stdout
    (feature,) = read_config(tmp_path / "fedminmax.toml").schema.features[3:]
    assert (feature.kind, set(feature.categories)) == (Kind.CATEGORY, set(codes))


def test_the_user_says_what_columns_are(tmp_path: Path) -> None:
    columns = {"zip": draws(["10115", "01067"]), "fees": range(ROWS), "PWGTP": range(ROWS)}

    def change(_: str, frame: pl.DataFrame) -> pl.DataFrame:
        return frame.with_columns(pl.Series(name, values) for name, values in columns.items())

    write_clinics(tmp_path, change)
    words = ["--number", "zip", "--drop", "fees,dose", "--weight", "PWGTP"]
    said = fedminmax(*INIT, *words, cwd=tmp_path).stdout
    assert "column 'fees' is skipped: it is left out, as --drop says\n" in said
    assert "column 'PWGTP' is skipped: it is the weight of a row" in said
    tables = load_federated_tables(read_config(tmp_path / "fedminmax.toml"))
    kinds = {feature.column: feature.kind for feature in tables.encoding.schema.features}
    assert kinds == {"age": Kind.NUMERIC, "ward": Kind.CATEGORY, "zip": Kind.NUMERIC}
    note = (
        "weights in 'PWGTP' are not used: every row counts once, and the results are about these "
        "rows, not about the population that they were drawn from"
    )
    assert note in tables.notes
    refused = fedminmax(*INIT, *words, "--category", "zip", "--force", cwd=tmp_path)
    assert refused.returncode == 2
    assert "column 'zip' is named twice; --category, --number" in refused.stderr


def test_a_long_list_is_left_to_the_sites(tmp_path: Path) -> None:
    towns = [f"town {number:02d}" for number in range(40)]
    write_clinics(tmp_path, with_column("town", every=towns * 10), rows=400)
    said = fedminmax(*INIT, cwd=tmp_path).stdout
    assert "column 'town': no list of categories; the sites agree on them\n" in said
    path = tmp_path / "fedminmax.toml"
    assert "town 07" not in path.read_text(encoding="utf-8")
    tables = load_federated_tables(read_config(path))
    assert tables.encoding.schema.features[-1].categories == tuple(towns)
    fedminmax(*INIT, "--list-categories", "--force", cwd=tmp_path)
    assert read_config(path).schema.features[-1].categories == tuple(towns)


def test_texts_that_are_mostly_rare_are_no_categories(tmp_path: Path) -> None:
    names = {name: [f"{name} {n}" for n in range(ROWS)] for name in CLINICS}
    write_clinics(tmp_path, with_column("person", **names))
    said = fedminmax(*INIT, cwd=tmp_path).stdout
    assert "column 'person' is skipped: it has 600 different texts, too many for categories" in said


def test_quantities_are_not_called_codes() -> None:
    generator = np.random.default_rng(0)
    columns = {
        "years": generator.integers(18, 90, 3000),
        "price": 10 * generator.integers(1, 400, 3000),
        "gain": np.where(generator.random(3000) < 0.9, 0, generator.integers(0, 90000, 3000)),
        "children": generator.poisson(1.5, 3000),
        "steps": generator.integers(0, 20000, 3000),
        "age": np.where(generator.random(3000) < 0.1, 999, generator.integers(18, 90, 3000)),
    }
    scores = generator.integers(0, 2, (3000, 1)).astype(float)
    for name, values in columns.items():
        guess = guess_feature(pl.Series(name, values).cast(pl.String), Stated(1, scores=scores))
        assert not guess.may_be_codes, name
        assert not guess.is_code, name


def test_leading_zeros_that_one_file_lost_are_named(tmp_path: Path) -> None:
    whole = draws(["01067", "10115"])
    lost = [code.lstrip("0") for code in whole]
    write_clinics(tmp_path, with_column("zip", north=whole, south=lost, west=whole))
    said = fedminmax(*INIT, cwd=tmp_path).stdout
    assert "column 'zip' has leading zeros in north.csv, west.csv and none in south.csv" in said


@pytest.mark.parametrize(
    ("column", "values", "why"),
    [
        ("", range(ROWS), "numbers the rows, as its name says"),
        ("Unnamed: 0", range(ROWS), "numbers the rows, as its name says"),
        ("rownames", range(5, ROWS + 5), "numbers the rows, as its name says"),
        ("case", range(1, ROWS + 1), "numbers the rows: it counts them in order"),
        ("instance_weight", np.random.default_rng(0).gamma(2, 900, ROWS), "is a weight of rows"),
    ],
)
def test_an_index_and_a_weight_are_no_features(
    tmp_path: Path, column: str, values: object, why: str
) -> None:
    write_clinics(tmp_path, with_column(column, every=values))
    done = fedminmax(*INIT, cwd=tmp_path)
    assert f"column '{column}' is skipped: it {why}" in done.stdout
    features = read_config(tmp_path / "fedminmax.toml").schema.feature_columns
    assert features == ("age", "dose", "ward")


@pytest.mark.parametrize(("texts", "unit"), [("{}%", "%"), ("${}", "$"), ("{} kg", "kg")])
def test_numbers_with_a_unit_are_read(tmp_path: Path, texts: str, unit: str) -> None:
    numbers = (np.arange(ROWS) % 90 + 0.5).tolist()
    write_clinics(tmp_path, with_column("share", every=[texts.format(one) for one in numbers]))
    assert fedminmax(*INIT, cwd=tmp_path).returncode == 0
    config = read_config(tmp_path / "fedminmax.toml")
    assert config.schema.units == {"share": unit}
    assert load_federated_tables(config).summary.quantities["share"].mean == pytest.approx(
        np.mean(numbers), rel=0.05
    )


def test_a_date_column_with_one_bad_cell_is_kept_and_explained() -> None:
    days = [f"{1 + n % 28:02d}/{1 + n % 12:02d}/{1990 + n % 30}" for n in range(ROWS)]
    for texts in (
        [*days, "00/00/0000"],
        [f"2020-{1 + n % 12:02d}-{1 + n % 28:02d}" for n in range(ROWS)] + ["0000-00-00"],
    ):
        guess = guess_feature(pl.Series("born", texts), Stated(1))
        assert guess.feature is not None
        assert guess.feature.kind is Kind.DATE
        assert "values that are not dates: 1 of them in 1 row" in guess.remark


def test_times_with_an_offset_are_read_in_utc() -> None:
    texts = pl.Series(
        ["2024-03-01T00:30:00+01:00", "2024-02-29T23:30:00Z", "2024-02-29 18:30:00-0500"]
    )
    days = numbers_in(texts, Kind.DATE)
    expected = datetime(2024, 2, 29, 23, 30, tzinfo=UTC).timestamp() / 86400
    assert days.to_list() == pytest.approx([expected] * 3, abs=1e-9)


def test_parquet_with_zones_and_durations_is_read(tmp_path: Path) -> None:
    start = datetime(2024, 1, 1, tzinfo=ZoneInfo("Europe/Berlin"))
    for seed, name in enumerate(CLINICS):
        frame = draw_clinic(ROWS, seed).with_columns(
            seen=pl.Series([start + timedelta(hours=n) for n in range(ROWS)]),
            stay=pl.Series([timedelta(hours=6 * (1 + n % 9)) for n in range(ROWS)]),
        )
        frame.write_parquet(tmp_path / f"{name}.parquet")
    words = [word.replace(".csv", ".parquet") for word in INIT]
    done = fedminmax(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    config = read_config(tmp_path / "fedminmax.toml")
    kinds = {own.column: own.kind for own in config.schema.features}
    assert (kinds["seen"], kinds["stay"]) == (Kind.DATE, Kind.NUMERIC)
    stay = load_federated_tables(config).summary.quantities["stay"]
    assert stay.mean == pytest.approx(0.25 * 5, rel=0.05)


@pytest.mark.parametrize("text", ["-", "None", "NA"])
def test_a_text_that_counts_as_missing_is_said(tmp_path: Path, text: str) -> None:
    def change(name: str, frame: pl.DataFrame) -> pl.DataFrame:
        first = pl.Series(np.arange(len(frame)) == (3 if name == "south" else -1))
        return frame.with_columns(sex=pl.when(first).then(pl.lit(text)).otherwise("sex"))

    write_clinics(tmp_path, change)
    said = fedminmax(*INIT, cwd=tmp_path).stderr
    assert (
        f"row 4 is '{text}', which missing_values in [data] count as missing (1 such row)" in said
    )


def test_a_file_that_does_not_exist_comes_before_a_configuration_that_does(tmp_path: Path) -> None:
    (tmp_path / "fedminmax.toml").write_text("mine")
    done = fedminmax("init", "nofile.csv", "--target", "y", "--groups", "sex", cwd=tmp_path)
    assert "nofile.csv does not exist" in done.stderr


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
