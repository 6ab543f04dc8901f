"""Files that no configuration can be proposed for, and names for sites."""

from pathlib import Path

import polars as pl

from fedminmax.data.tables.propose import InitChoices, propose, site_names
from tests.complaints import complaint_of
from tests.data.tables.small_tables import NORTH, SOUTH, write_files


def refused(
    folder: Path,
    *,
    files: tuple[str, ...] = ("north.csv", "south.csv"),
    target: str = "ill",
    groups: tuple[str, ...] = ("sex",),
    site: str | None = None,
) -> str:
    """The complaint about these words, without their folder."""
    paths = [folder / file for file in files]
    said = complaint_of(
        lambda: propose(paths, target, groups, site_column=site, choices=InitChoices())
    )
    return said.replace(f"{folder}/", "")


def test_a_column_that_is_not_there(tmp_path: Path) -> None:
    write_files(tmp_path)
    assert refused(tmp_path, target="il") == (
        "north.csv (4 rows) has no column 'il', which the command names; did you mean 'ill'?"
    )


def test_columns_that_one_file_lacks_are_named_and_not_used(tmp_path: Path) -> None:
    write_files(tmp_path, south=SOUTH.replace("smoker", "pipe"))
    found = propose(
        [tmp_path / "north.csv", tmp_path / "south.csv"],
        "ill",
        ["sex"],
        site_column=None,
        choices=InitChoices(minimum_category=1),
    )
    assert list(found.features) == ["age", "sex", "ward"]
    (remark,) = (one for one in found.remarks if "lack" in one)
    assert remark.replace(f"{tmp_path}/", "") == (
        "columns that some files lack are not used: 'smoker' (only in north.csv), 'pipe' (only in "
        "south.csv)"
    )


def test_a_column_in_another_letter_case_is_refused(tmp_path: Path) -> None:
    write_files(tmp_path, south=SOUTH.replace("age", "Age"))
    assert refused(tmp_path) == (
        "south.csv has a column 'Age' and north.csv has 'age'; give them the same name"
    )


def test_a_file_twice(tmp_path: Path) -> None:
    write_files(tmp_path)
    assert refused(tmp_path, files=("north.csv", "north.csv")) == (
        "north.csv is given twice, so two sites have one name; give each file once"
    )


def test_files_of_one_name_in_different_folders_are_different_sites() -> None:
    paths = [Path("a/data.csv"), Path("b/data.csv")]
    assert list(site_names(paths)) == ["a/data", "b/data"]


def test_a_column_of_lists_is_skipped(tmp_path: Path) -> None:
    frame = pl.DataFrame({"sex": ["f", "m"] * 20, "ill": ["no", "yes", "no", "no"] * 10})
    lists = frame.with_columns(scans=pl.Series([[1.5, 2.5]] * 40), age=pl.int_range(40))
    lists.write_parquet(tmp_path / "north.parquet")
    found = propose(
        [tmp_path / "north.parquet"], "ill", ["sex"], site_column=None, choices=InitChoices()
    )
    assert found.features["age"].feature is not None
    assert found.features["scans"].feature is None
    assert "lists" in found.features["scans"].remark


def test_a_target_with_one_class(tmp_path: Path) -> None:
    write_files(tmp_path, north=NORTH.replace("yes\n", "no\n"))
    assert refused(tmp_path, files=("north.csv",)) == (
        "target 'ill' has the one class 'no' in all 4 rows of 1 file; choose another target, or "
        "give files with another class"
    )


def test_a_site_column_and_several_files(tmp_path: Path) -> None:
    write_files(tmp_path)
    assert refused(tmp_path, site="ward") == (
        "--site-column ward and 2 files were given; give one file with a site column, or one file "
        "per site"
    )


def test_a_column_with_two_roles(tmp_path: Path) -> None:
    write_files(tmp_path)
    assert refused(tmp_path, groups=("sex", "ill")) == (
        "column 'ill' is named twice; target, groups, site and person are different columns"
    )


def test_a_target_of_texts_that_hardly_repeat(tmp_path: Path) -> None:
    rows = "".join(f"{number},Female,patient {number}\n" for number in range(60))
    write_files(tmp_path, north="age,sex,name\n" + rows, south="age,sex,name\n" + rows)
    assert refused(tmp_path, target="name") == (
        "target 'name' has 60 different values that are not all numbers; choose another target"
    )


def test_a_group_column_of_values_that_hardly_repeat(tmp_path: Path) -> None:
    write_files(tmp_path)
    assert refused(tmp_path) == (
        "group column 'sex' has no value with at least 10 rows; choose another column, or give a "
        "smaller --minimum-category"
    )
