"""Files that write numbers, dates and letters otherwise: read as set, else told what to set."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fedminmax.config.file_format import FileFormat, FormatChanges
from fedminmax.config.planned_runs import PlannedRun
from fedminmax.config.read import Source, read_config
from fedminmax.config.schema import Feature, Kind, Schema, Target
from fedminmax.data.tables.config_text import config_text
from fedminmax.data.tables.infer import Stated, guess_feature
from fedminmax.data.tables.load import load_federated_tables
from fedminmax.data.tables.notation import guess_date_format, guess_number_format, number_hint
from fedminmax.data.tables.odd_rows import outlier_rows
from fedminmax.data.tables.parse_rows import parse_features
from fedminmax.data.tables.propose import InitChoices, Proposal, propose
from fedminmax.data.tables.read_file import read_table
from fedminmax.data.tables.sources import read_source
from fedminmax.network.site.policy import read_own_rows
from fedminmax.network.site.settings import SiteSettings
from tests.complaints import complaint_of
from tests.data.tables.small_tables import load, table_of, write_config, write_files
from tests.network.network_problem import plan_of

ANY_SIZE = InitChoices(minimum_category=1)
# The same four rows as programs and as an office program in German write them.
PLAIN_ROWS = """dose,income,seen,sex,ill
0.5,1234567.5,2024-01-31,Female,no
1.25,800.25,2024-02-01,Male,yes
-3,12000,2024-12-24,Female,yes
12.5,-4500.75,1999-03-02,Männlich,no
"""
GERMAN_ROWS = """dose;income;seen;sex;ill
0,5;1.234.567,5;31.01.2024;Female;no
1,25;800,25;01.02.2024;Male;yes
-3;12.000;24.12.2024;Female;yes
12,5;-4.500,75;02.03.1999;Männlich;no
"""
COLUMNS = ("dose", "income", "seen")


def numbers_of(path: Path, file_format: FileFormat) -> list[list[float]]:
    """What a file's numbers and dates are read as."""
    kinds = {"dose": Kind.NUMERIC, "income": Kind.NUMERIC, "seen": Kind.DATE}
    schema = Schema(Target("ill"), tuple(Feature(name, kind) for name, kind in kinds.items()), ())
    rows = parse_features(read_table(path, COLUMNS, file_format), schema)
    return [rows.quantities[name].tolist() for name in COLUMNS]


def written(folder: Path, text: str, name: str = "north.csv", encoding: str = "utf-8") -> Path:
    path = folder / name
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "utf-16", "utf-16-le", "utf-8-sig"])
def test_a_file_as_another_program_writes_it_reads_alike(encoding: str, tmp_path: Path) -> None:
    german = FileFormat(
        encoding="auto" if encoding in ("utf-8", "utf-16", "utf-8-sig") else encoding,
        decimal=",",
        thousands=".",
        date_format="%d.%m.%Y",
    )
    path = written(tmp_path, GERMAN_ROWS, encoding=encoding)
    plain = numbers_of(written(tmp_path, PLAIN_ROWS, "south.csv"), FileFormat())
    assert numbers_of(path, german) == plain
    assert plain[1][0] == 1234567.5
    assert read_table(path, COLUMNS, german).frame["sex"][3] == "Männlich"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12,5", 'set decimal = "," in [data]'),
        ("1.234,5", 'set decimal = "," and thousands = "." in [data]'),
        ("1 234.5", 'set decimal = "." and thousands = " " in [data]'),
        ("1'234", 'set decimal = "." and thousands = "\'" in [data]'),
    ],
)
def test_a_number_of_another_format_is_refused_with_what_to_set(text: str, expected: str) -> None:
    schema = Schema(Target("y"), (Feature("dose", Kind.NUMERIC),), ())
    said = complaint_of(lambda: parse_features(table_of({"dose": ["1", text]}), schema))
    assert f"row 2: '{text}' is not a number; {expected}" in said


def test_a_plain_number_in_a_file_with_decimal_commas_is_refused() -> None:
    schema = Schema(Target("y"), (Feature("dose", Kind.NUMERIC),), ())
    table = replace(table_of({"dose": ["1,5", "2.500"]}), format=FileFormat(decimal=","))
    said = complaint_of(lambda: parse_features(table, schema))
    assert "'2.500' is not a number with decimal ','; set decimal" in said


def test_a_date_of_another_format_is_refused_with_what_to_set() -> None:
    schema = Schema(Target("y"), (Feature("seen", Kind.DATE),), ())
    said = complaint_of(lambda: parse_features(table_of({"seen": ["31.12.2024"]}), schema))
    assert 'set date_format = "%d.%m.%Y" in [data]' in said
    said = complaint_of(lambda: parse_features(table_of({"seen": ["01/02/2024"]}), schema))
    assert 'set date_format = "%d/%m/%Y" or "%m/%d/%Y" in [data]' in said


def test_the_format_of_all_dates_leaves_iso_dates_and_formats_of_columns_as_they_are() -> None:
    features = (Feature("a", Kind.DATE), Feature("b", Kind.DATE, date_format="%m/%d/%Y"))
    schema = Schema(Target("y"), features, ())
    table = table_of({"a": ["1970-01-02"], "b": ["01/02/1970"]})
    agreed = FileFormat(date_format="%d/%m/%Y")
    rows = parse_features(replace(table, format=agreed), schema)
    assert [rows.quantities[name].tolist() for name in "ab"] == [[1.0], [1.0]]
    # What a file says of itself comes before the agreed format of a column.
    own = FormatChanges(date_format="%d/%m/%Y").apply(agreed)
    rows = parse_features(replace(table, format=own), schema)
    assert rows.quantities["b"].tolist() == [31.0]


def test_categories_with_decimal_commas_are_read_by_value(tmp_path: Path) -> None:
    north = "age;sex;ward;smoker;ill\n30;F;1,0;0;no\n41;M;2,5;1;yes\n"
    south = "age,sex,ward,smoker,ill\n30,F,1,0,no\n41,M,2.5,1,yes\n"
    write_files(tmp_path, north=north, south=south)
    own = ("[groups]", '[data.formats.north]\ndecimal = ","\n[groups]')
    tables = load(tmp_path, own, ('["a", "b", "c"]', '["1", "2.5"]'))
    one, other = (part.examples.x.tolist() for part in tables.train)
    assert one == other


def proposed(paths: list[Path]) -> Proposal:
    return propose(paths, "ill", ["sex"], site_column=None, choices=ANY_SIZE)


def test_init_proposes_what_it_finds_and_the_configuration_reads_it(tmp_path: Path) -> None:
    paths = [
        written(tmp_path, PLAIN_ROWS, "north.csv"),
        written(tmp_path, GERMAN_ROWS, "south.csv", "cp1252"),
    ]
    config = tmp_path / "fedminmax.toml"
    config.write_text(config_text(proposed(paths), config))
    read = read_config(config)
    assert read.training[0].format is None
    south = read.training[1].format
    assert south is not None
    assert south == FileFormat(
        "auto", "cp1252", decimal=",", thousands=".", date_format="%d.%m.%Y", own_dates=True
    )
    kinds = {feature.column: feature.kind for feature in read.schema.features}
    assert kinds == {"dose": Kind.NUMERIC, "income": Kind.NUMERIC, "seen": Kind.DATE}
    assert read.schema.protected[0].values == ("Female", "Male", "Männlich")
    north, west = (part.examples for part in load_federated_tables(replace(read, held_out=0)).train)
    assert north.x.tolist() == west.x.tolist()


def test_a_site_reads_its_own_file_in_its_own_format(tmp_path: Path) -> None:
    config = tmp_path / "fedminmax.toml"
    config.write_text(config_text(proposed([written(tmp_path, PLAIN_ROWS)]), config))
    plan = plan_of(replace(read_config(config), held_out=0), [PlannedRun("fedminmax", {}, 1)])
    path = written(tmp_path, GERMAN_ROWS, "german.csv", "latin-1")
    own = FormatChanges(encoding="latin-1", decimal=",", thousands=".", date_format="%d.%m.%Y")
    rows = read_own_rows(plan, SiteSettings(path, format=own), "north").train
    usual = read_own_rows(plan, SiteSettings(tmp_path / "north.csv"), "north").train
    for column in COLUMNS:
        own_values = rows.features.quantities[column]
        np.testing.assert_array_equal(own_values, usual.features.quantities[column])
    with pytest.raises(ValueError, match="this site's decimal is ';'"):
        read_own_rows(plan, SiteSettings(path, format=FormatChanges(decimal=";")), "north")


@pytest.mark.parametrize(("delimiter", "decimal", "thousands"), [(",", ".", ","), (";", ",", "")])
def test_a_comma_before_three_digits_is_what_it_is_in_such_files(
    delimiter: str, decimal: str, thousands: str
) -> None:
    found = guess_number_format([pl.Series(["1,234", "12,345"])], FileFormat(delimiter))
    assert (found.decimal, found.thousands) == (decimal, thousands)
    # A column of plain numbers has the last word.
    plain = pl.Series(["0.5", "1.25"])
    found = guess_number_format([pl.Series(["1,234"]), plain], FileFormat(delimiter))
    assert (found.decimal, found.thousands) == (".", ",")


def test_no_number_begins_with_a_zero_before_thousands() -> None:
    dose = pl.Series(["0,123", "-1,250", "0,004"])
    income = pl.Series(["1.200", "12.500", "890"])
    found = guess_number_format([dose, income], FileFormat(";"))
    assert (found.decimal, found.thousands) == (",", ".")
    # Alone, such a column is one of plain numbers; the user is told of the other reading.
    many = pl.Series("x", [f"{n}.{100 + n}" for n in range(10, 32)])
    assert guess_number_format([many], FileFormat(";")).has_plain_numbers
    assert "Every number has a dot before three digits" in guess_feature(many, Stated(1)).remark


def test_with_semicolons_a_comma_is_the_decimal_mark_beside_dots_before_three_digits() -> None:
    lab, income = pl.Series(["7,157", "1,018"]), pl.Series(["91.643", "45.120"])
    found = guess_number_format([lab, income], FileFormat(";"))
    assert (found.decimal, found.thousands) == (",", ".")


def test_the_hint_may_be_the_plain_format() -> None:
    german = FileFormat(";", decimal=",", thousands=".")
    hint = number_hint(pl.Series(["2.9412", "1.5"]), german)
    assert 'set decimal = "." and thousands = ""' in hint


def test_years_of_two_digits_are_not_guessed() -> None:
    born = pl.Series("born", [f"{day:02}.02.{year}" for day in range(13, 29) for year in (45, 81)])
    guess = guess_feature(born, Stated(1))
    assert guess.feature is None
    assert "years of two digits, which do not tell the century" in guess.remark
    assert guess_date_format([born], FileFormat()).date_format is None
    iso = guess_feature(pl.Series("born", ["45-01-02", "81-03-04", "99-05-06"]), Stated(1))
    assert iso.feature is not None
    assert iso.feature.kind is Kind.CATEGORY


def test_a_column_of_numbers_that_other_columns_contradict_is_told() -> None:
    few = guess_feature(pl.Series("x", ["1,5", "2,5", "1,5"]), Stated(1))
    assert few.feature is not None
    assert 'numbers with decimal = ","' in few.remark
    many = guess_feature(pl.Series("x", [f"{n},5" for n in range(60)]), Stated(1))
    assert many.feature is None
    assert "give --decimal and --thousands" in many.remark


def test_init_says_which_dates_it_cannot_tell() -> None:
    clear = guess_feature(pl.Series("x", ["13/02/2024", "01/02/2024"]), Stated(1))
    assert clear.feature == Feature("x", Kind.DATE, date_format="%d/%m/%Y")
    doubtful = guess_feature(pl.Series("x", ["11/02/2024", "01/02/2024"]), Stated(1))
    assert doubtful.feature is None
    assert doubtful.remark == ("has dates that are either %d/%m/%Y or %m/%d/%Y: give --date-format")
    assert '"%Y%m%d"' in guess_feature(pl.Series("x", ["20240131", "19991224"]), Stated(1)).remark


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ('decimal = ";"', "[data] decimal is ';'"),
        ('thousands = "."', "[data] thousands is '.' with decimal '.'"),
        ('encoding = "utf-5"', "[data] encoding is 'utf-5', which is unknown"),
        ('date_format = "%H"', "[data] date_format is '%H', which does not determine a day"),
        ("[data.formats.nort]\n", "[data.formats.nort] is not a site or test file; did you mean"),
        ('[data.formats.north]\ndecimal = "x"', "[data.formats.north] decimal is 'x'"),
    ],
)
def test_formats_that_no_file_has(lines: str, expected: str, tmp_path: Path) -> None:
    path = write_config(tmp_path, ("held_out = 0", f"held_out = 0\n{lines}"))
    assert expected in complaint_of(lambda: read_config(path))


def test_utf_16_without_its_mark_is_told(tmp_path: Path) -> None:
    path = written(tmp_path, PLAIN_ROWS, encoding="utf-16-be")
    said = complaint_of(lambda: read_table(path, COLUMNS))
    assert 'set encoding = "utf-16-be" (or what it is in) in [data]' in said
    wrong = FileFormat(encoding="ascii")
    assert "is not in ascii; set another" in complaint_of(partial(read_table, path, COLUMNS, wrong))


def far(*values: float) -> tuple[int, int]:
    """How many of these rows are far, and too far, among 99 ordinary ones."""
    ordinary = np.linspace(20.0, 80.0, 99)
    warned, refused = outlier_rows(np.array([*ordinary, *values]))
    return int(warned.sum()), int(refused.sum())


def test_rows_that_are_far_from_all_others() -> None:
    # 99 % of the rows are within 30 of the median, 50.
    assert far(100.0) == (0, 0)
    assert far(50 + 30 * 99) == (0, 0)
    assert far(50 + 30 * 103) == (1, 0)
    assert far(50 - 30 * 1.1e6) == (1, 1)
    assert far(1e308) == (1, 1)
    assert far(np.nan) == (0, 0)
    # Where most rows are alike, the others decide.
    rare = np.array([*[0.0] * 997, 1.0, 2.0, 1e9])
    assert [int(mask.sum()) for mask in outlier_rows(rare)] == [1, 1]
    assert not outlier_rows(np.array([0.0] * 999 + [5.0]))[0].any()


@pytest.mark.parametrize("cell", ["99999", "1e308"])
def test_a_cell_that_would_wipe_out_a_column(cell: str, tmp_path: Path) -> None:
    rows = [f"{20 + n % 60},{'MF'[n % 2]},a,{n % 2},{['no', 'yes'][n % 2]}" for n in range(60)]
    text = "\n".join(["age,sex,ward,smoker,ill", *rows, f"{cell},M,b,1,no"]) + "\n"
    write_files(tmp_path, north=text, south=text)
    config = read_config(write_config(tmp_path))
    if cell == "1e308":
        said = complaint_of(lambda: read_source(config.training[0], config))
        assert "column 'age', row 61 is 1e+308, so far from the others" in said
        assert "(1 such rows); correct it, or add it to missing_values in [data]" in said
    else:
        (warning,) = read_source(config.training[0], config).warnings
        assert "more than 100 times as far" in warning
        assert "'age' in 1 row of" in warning
        assert cell not in warning
    missing = ("held_out = 0", f'held_out = 0\nmissing_values = ["{cell}"]')
    assert not any("times as far" in words for words in load(tmp_path, missing).warnings)
    # init says so too, in its file as well, and without the value.
    guess = propose(
        [tmp_path / "north.csv"], "ill", ["sex"], site_column=None, choices=ANY_SIZE
    ).features["age"]
    assert "1 row is very far from all others" in guess.remark


def test_a_prediction_out_of_all_bounds_is_refused(tmp_path: Path) -> None:
    write_files(tmp_path, later="age,sex,ward,smoker,ill\n1e300,Male,a,1,no\n")
    config = read_config(write_config(tmp_path))
    test = replace(config, test=(Source(tmp_path / "later.csv", "later"),))
    assert "1e+300" in complaint_of(lambda: load_federated_tables(test))
