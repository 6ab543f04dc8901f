"""One value is one, however a file spells it; what may be two spellings is not guessed."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from fedminmax.config.read import read_config
from fedminmax.config.schema import Schema, Target
from fedminmax.data.tables.load import FederatedTables, load_federated_tables
from fedminmax.data.tables.parse_columns import read_values
from fedminmax.data.tables.parse_rows import parse_features
from fedminmax.data.tables.propose import InitChoices, propose
from tests.complaints import complaint_of
from tests.data.tables.small_tables import SCHEMA, load, table_of, write_files

ANY_SIZE = InitChoices(minimum_category=1)
MERGED = InitChoices(minimum_category=1, merge_spellings=True)
ZERO_ONE = """sex,smoker,dose,ill
0,0,1,0
1,1,2,1
0,1,3,1
1,0,4,0
"""
# The same rows as floats, with a sign on a zero, and with booleans.
FLOATS = "sex,smoker,dose,ill\n0.0,-0.0,1,0.0\n1.0,1.0,2,1.0\n0.00,1.,3,+1\n1.0,0.0,4,-0.0\n"
WORDS = "sex,smoker,dose,ill\nfalse,0,1,False\ntrue,1,2,True\nFALSE,1,3,TRUE\nTrue,0,4,false\n"
SECTIONS = """
[data]
target = "ill"
classes = ["0", "1"]
held_out = 0
[data.sites]
north = "north.{}"
south = "south.{}"
[groups]
columns = ["sex", "smoker"]
[features.dose]
kind = "numeric"
[features.smoker]
kind = "category"
categories = ["0", "1"]
[model]
kind = "logistic"
"""


def read(values: Sequence[object], known: Sequence[str] = (), *, merge: bool = False) -> list[str]:
    schema = Schema(Target("y"), (), (), merge_spellings=merge)
    return read_values(table_of({"x": values}), "x", schema, known).to_list()


def typed(frame: pl.DataFrame, kind: type[pl.DataType]) -> pl.DataFrame:
    labels = pl.col("sex", "smoker", "ill").cast(pl.Float64)
    return frame.with_columns(labels.cast(kind))


def loaded(folder: Path, ending: str) -> FederatedTables:
    path = folder / "fedminmax.toml"
    path.write_text(SECTIONS.format("csv", ending))
    return load_federated_tables(read_config(path))


def rows_of(tables: FederatedTables, site: int) -> list[list[float]]:
    part = tables.train[site].examples
    return [part.x.tolist(), part.y.tolist(), part.group.tolist()]


@pytest.mark.parametrize("south", [ZERO_ONE, FLOATS, WORDS, pl.Int8, pl.Float32, pl.Boolean])
def test_equal_numbers_and_booleans_are_one_in_all_files(
    south: str | type[pl.DataType], tmp_path: Path
) -> None:
    (tmp_path / "north.csv").write_text(ZERO_ONE)
    if isinstance(south, str):
        (tmp_path / "south.csv").write_text(south)
    else:
        frame = pl.read_csv(tmp_path / "north.csv")
        typed(frame, south).write_parquet(tmp_path / "south.parquet")
    tables = loaded(tmp_path, "csv" if isinstance(south, str) else "parquet")
    assert tables.group_names == (
        *("sex 0 / smoker 0", "sex 0 / smoker 1"),
        *("sex 1 / smoker 0", "sex 1 / smoker 1"),
    )
    assert rows_of(tables, 0) == rows_of(tables, 1)


def test_a_listed_spelling_is_the_one_that_is_shown() -> None:
    assert read(["1", "0.0", True, "FALSE"], ["false", "true"]) == ["true", "false"] * 2
    assert read([1.0, 2.0, 2.5], ["1.0"]) == ["1.0", "2", "2.5"]


def test_codes_are_texts() -> None:
    codes = ["007", "7", "1E50", "10000000000000000001", "10000000000000000002"]
    assert read(codes) == codes


def test_a_missing_value_is_one_in_any_type() -> None:
    schema = Schema(Target("y"), (), (), missing_values=("-999",))
    for values in (["-999", "-999.0", " -999 "], [-999.0, -999.0], [-999, None]):
        assert read_values(table_of({"x": values}), "x", schema).null_count() == len(values)


@pytest.mark.parametrize(
    ("values", "known"),
    [
        (["ill", "well", "ILL"], []),
        (["ill", " ill"], []),
        (["ill", "Ill"], ["ill", "well"]),
        (["ILL"], ["ill", "well"]),
        (["not ill", "not  ill"], []),
    ],
)
def test_two_spellings_are_refused_with_both_or_merged(
    values: list[object], known: list[str]
) -> None:
    said = complaint_of(lambda: read(values, known))
    spelled = (known[0] if len(values) == 1 else values[0], values[-1])
    assert all(f"'{own}'" in said for own in spelled)
    assert "set merge_spellings = true in [data]" in said
    merged = read(values, known, merge=True)
    assert merged[0] == merged[-1] == (known[0] if known else str(values[0]))


def test_letters_are_the_same_however_unicode_composes_them() -> None:
    """Composed (NFC) and decomposed (NFD), as different systems write the same word."""
    assert read(["caf\u00e9", "cafe\u0301"], []) == ["caf\u00e9"] * 2
    assert read(["cafe\u0301"], ["caf\u00e9"]) == ["caf\u00e9"]


def test_spellings_that_are_both_listed_are_two_values_on_purpose() -> None:
    assert read(["a", "A", "a"], ["A", "a"]) == ["a", "A", "a"]


def test_a_file_whose_cells_are_all_padded_reads_like_any_other() -> None:
    assert read([" ill", " well", " ill"], ["ill", "well"]) == ["ill", "well", "ill"]


def test_groups_of_different_sites_that_differ_in_letter_case(tmp_path: Path) -> None:
    write_files(tmp_path)
    south = tmp_path / "south.csv"
    south.write_text(south.read_text().replace("Female", "FEMALE"))
    assert complaint_of(lambda: load(tmp_path)) == (
        "sensitive attribute 'sex' has 'Female' and 'FEMALE' at different sites, which differ only "
        "in letter case or spaces; correct one of them, or set merge_spellings = true in [data] "
        "to read them as one"
    )
    target = 'target = "ill"'
    merged = load(tmp_path, (target, f"{target}\nmerge_spellings = true"))
    assert merged.group_names == ("female", "male")


def test_a_list_with_one_value_in_two_spellings(tmp_path: Path) -> None:
    write_files(tmp_path)
    said = complaint_of(lambda: load(tmp_path, ('["no", "yes"]', '["1", "true"]')))
    assert said.endswith(
        "[data] classes has '1' and 'true', which are read as one value; remove one of them"
    )


def test_init_sees_one_value_in_files_of_different_types(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("north.csv", "south.csv", "west.parquet")]
    for path, text in zip(paths, (ZERO_ONE, FLOATS), strict=False):
        path.write_text(text)
    typed(pl.read_csv(paths[0]), pl.Boolean).write_parquet(paths[2])
    proposal = propose(paths, "ill", ["sex"], site_column=None, choices=ANY_SIZE)
    assert proposal.target.classes == ("0", "1")
    assert proposal.protected[0].values == ("0", "1")
    # Where every file has words, the words are listed.
    only = propose(paths[2:], "ill", ["sex"], site_column=None, choices=ANY_SIZE)
    assert only.target.classes == only.protected[0].values == ("false", "true")


def test_init_refuses_two_spellings_and_merges_them_if_asked(tmp_path: Path) -> None:
    write_files(tmp_path)
    paths = [tmp_path / "north.csv", tmp_path / "south.csv"]
    paths[1].write_text(paths[1].read_text().replace("Male,a", "Male,A"))
    assert complaint_of(
        lambda: propose(paths, "ill", ["sex"], site_column=None, choices=ANY_SIZE)
    ) == (
        "column 'ward' has 'a' and 'A', which differ only in letter case or spaces; correct one "
        "of them, or read them as one with --merge-spellings"
    )
    feature = (
        propose(paths, "ill", ["sex"], site_column=None, choices=MERGED).features["ward"].feature
    )
    assert feature is not None
    assert feature.categories == ("a", "b", "c")


def test_rows_to_predict_are_read_by_the_same_rule() -> None:
    rows: dict[str, Sequence[object]] = {"age": [30], "ward": ["A"], "smoker": ["1.0"]}
    said = complaint_of(lambda: parse_features(table_of(rows), SCHEMA))
    assert "column 'ward' has 'A' where 'a' is a value too" in said
    merged = parse_features(table_of(rows), replace(SCHEMA, merge_spellings=True))
    assert merged.codes["ward"].tolist() == [0]
    assert merged.quantities["smoker"].tolist() == [1.0]
