"""A table that is read in pieces, and kept on disk, is the same as one that is read at once."""

import gzip
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedminmax.core import examples
from fedminmax.data.tables import odd_rows, read_csv, read_file
from fedminmax.data.tables.encoding_json import encoding_as_json
from fedminmax.data.tables.load import FederatedTables
from fedminmax.data.tables.odd_rows import codes_for_missing, outlier_rows
from tests.complaints import complaint_of
from tests.data.tables.small_tables import load, write_files

RECORDS = 400
SITES = '[data.sites]\nnorth = "north.csv"\nsouth = "south.csv"\n'
OPEN = ('kind = "category"\ncategories = ["a", "b", "c"]', 'kind = "category"')


@pytest.fixture
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are read, worked on and kept in very small parts."""
    monkeypatch.setattr(read_csv, "PIECE_BYTES", 700)
    monkeypatch.setattr(read_file, "PIECE_VALUES", 150)
    monkeypatch.setattr(examples, "PORTION", 37)
    monkeypatch.setattr(odd_rows, "PORTION", 37)
    monkeypatch.setattr(examples, "MOST_IN_MEMORY", 100)


def frame(seed: int) -> pl.DataFrame:
    """Records with missing values, a code for missing ones, persons, and texts with line ends."""
    draw = np.random.default_rng(seed)
    age = draw.integers(20, 80, RECORDS).astype(float)
    age[draw.random(RECORDS) < 0.1] = 999.0
    ill = draw.random(RECORDS) < 0.2 + 0.005 * (age % 90)
    sex = draw.choice(["Female", "Male", ""], RECORDS, p=[0.5, 0.48, 0.02])
    return pl.DataFrame(
        {
            "age": [None if draw.random() < 0.1 else value for value in age.tolist()],
            "sex": [value or None for value in sex.tolist()],
            "ward": draw.choice(["a", "b", "c", "d"], RECORDS, p=[0.6, 0.3, 0.08, 0.02]).tolist(),
            "note": draw.choice(['plain, or "not"', "two\nlines", "x"], RECORDS).tolist(),
            "smoker": draw.choice(["yes", "no"], RECORDS).tolist(),
            "person": draw.integers(0, 150, RECORDS).astype(str).tolist(),
            "hospital": draw.choice(["west", "east", "mid"], RECORDS).tolist(),
            "ill": np.where(ill, "yes", "no").tolist(),
        }
    )


def write(folder: Path, ending: str) -> tuple[tuple[str, str], ...]:
    """Write both sites' files, and return the changes that name them."""
    for seed, site in enumerate(("north", "south")):
        path, own = folder / f"{site}.{ending}", frame(seed)
        if ending == "parquet":
            own.write_parquet(path)
        elif ending == "csv.gz":
            path.write_bytes(gzip.compress(own.write_csv().encode()))
        else:
            own.write_csv(path)
    return ((SITES, SITES.replace("csv", ending)), ('["sex"]', '["sex"]\nmissing = "leave_out"'))


def same(one: FederatedTables, other: FederatedTables) -> None:
    """Everything that training and its reader see is the same to the bit."""
    assert encoding_as_json(one.encoding) == encoding_as_json(other.encoding)
    assert one.warnings == other.warnings
    assert one.kept_warnings == other.kept_warnings
    assert one.notes == other.notes
    assert one.summary == other.summary
    assert one.held_out.as_json() == other.held_out.as_json()
    assert one.set_aside.as_json() == other.set_aside.as_json()
    for name in ("train", "test", "validation"):
        for mine, own in zip(getattr(one, name), getattr(other, name), strict=True):
            assert mine.owner == own.owner
            for part in ("x", "y", "group"):
                ours, theirs = getattr(mine.examples, part), getattr(own.examples, part)
                assert ours.dtype == theirs.dtype
                assert bool((ours == theirs).all())
            assert bool((mine.merged == own.merged).all())


KIND, SHARES = 'kind = "logistic"', "held_out = 0"
DRAWN = (SHARES, "held_out = 0.25\nvalidation = 0.2")
WAYS = {
    "listed categories": (DRAWN,),
    "additive, categories from the sites": (DRAWN, OPEN, (KIND, 'kind = "additive"')),
    "persons": ((SHARES, 'held_out = 0.25\nperson_column = "person"'),),
}


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet"])
@pytest.mark.parametrize("way", WAYS)
def test_pieces_are_the_same_as_the_whole(
    tmp_path: Path, way: str, ending: str, request: pytest.FixtureRequest
) -> None:
    changes = (*write(tmp_path, ending), *WAYS[way])
    whole = load(tmp_path, *changes)
    request.getfixturevalue("in_pieces")
    same(load(tmp_path, *changes), whole)


def test_a_quantity_is_the_same(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    for seed, site in enumerate(("north", "south")):
        frame(seed).drop_nulls(["age", "sex"]).write_csv(tmp_path / f"{site}.csv")
    changes = (
        ('target = "ill"\nclasses = ["no", "yes"]', 'target = "age"\ntask = "regression"'),
        ('[features.age]\nkind = "numeric"\n', ""),
        ('kind = "logistic"', 'kind = "linear"'),
    )
    whole = load(tmp_path, *changes)
    request.getfixturevalue("in_pieces")
    same(load(tmp_path, *changes), whole)


def test_a_site_column_and_its_pieces(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    write_files(tmp_path)
    frame(0).write_csv(tmp_path / "all.csv")
    changes = (
        (SITES, 'file = "all.csv"\nsite_column = "hospital"\n'),
        ('["sex"]', '["sex"]\nmissing = "own_group"'),
        (SHARES, "held_out = 0.25"),
    )
    whole = load(tmp_path, *changes)
    assert whole.sites == ("east", "mid", "west")
    request.getfixturevalue("in_pieces")
    same(load(tmp_path, *changes), whole)


@pytest.mark.usefixtures("in_pieces")
def test_mistakes_are_named_with_their_row(tmp_path: Path) -> None:
    write(tmp_path, "csv")
    path, changes = tmp_path / "north.csv", (('["sex"]', '["sex"]\nmissing = "leave_out"'),)
    good = frame(0).with_columns(age=pl.lit(30)).write_csv()
    path.write_text(good + "old,Male,a,x,yes,1,east,no\n")
    said = complaint_of(lambda: load(tmp_path, *changes))
    assert f"column 'age', row {RECORDS + 1}: 'old' is not a number" in said
    path.write_text(good + "30,Male,a,x,yes\n")
    said = complaint_of(lambda: load(tmp_path, *changes))
    assert f"row {RECORDS + 1} has 5 fields, the header has 8" in said
    path.write_text(good + "30,Male,a,x,yes,1,east,maybe\n")
    assert f"row {RECORDS + 1}: 'maybe' is not a class" in complaint_of(
        lambda: load(tmp_path, *changes)
    )


FIELDS = st.text(st.sampled_from('a,"\n '), max_size=4)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(FIELDS, FIELDS), min_size=1, max_size=12), st.integers(1, 40))
def test_cuts_within_quotes_never_change_a_record(
    tmp_path_factory: pytest.TempPathFactory, records: list[tuple[str, str]], size: int
) -> None:
    path = tmp_path_factory.mktemp("cut") / "t.csv"
    rows = pl.DataFrame([*records, ("end", "end")], schema=["one", "two"], orient="row")
    rows.write_csv(path, quote_style="always")
    whole = read_file.read_table(path, ["one"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read_csv, "PIECE_BYTES", size)
        pieces = read_file.read_table(path, ["one"])
    assert pieces.frame.equals(whole.frame)
    assert pieces.row_numbers.equals(whole.row_numbers)
    assert whole.frame.fill_null("").rows() == rows.rows()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from([999.0, 998.0, -1.0, -0.0, np.nan]),
            st.integers(0, 60).map(float),
            st.floats(-1e120, 1e120),
        ),
        max_size=120,
    ),
    st.integers(1, 20),
)
def test_ranks_found_in_portions_are_those_of_the_sorted_column(
    values: list[float], size: int
) -> None:
    column = np.array([*values, *range(25)])
    whole = (*outlier_rows(column), codes_for_missing(column))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(examples, "PORTION", size)
        patch.setattr(odd_rows, "PORTION", size)
        parts = (*outlier_rows(column), codes_for_missing(column))
    assert whole[0].tolist() == parts[0].tolist()
    assert whole[1].tolist() == parts[1].tolist()
    assert whole[2] == parts[2]
    ordinary = np.sort(column[np.abs(column) <= odd_rows.MAX_NUMBER])
    rank = len(ordinary) // 2
    assert odd_rows._ranked(column, rank) == ordinary[rank]


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_columns_on_disk_keep_no_file_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may often have 1,024 open files, but more columns."""
    monkeypatch.setattr(examples, "MOST_IN_MEMORY", 100)
    # So many files are made and freed in less time in memory.
    monkeypatch.setattr(examples, "_folder", lambda: str(Path("/", "dev", "shm")))
    before = open_files()
    kept = [examples.new_array((20,), "f8") for _ in range(3_000)]
    assert open_files() < before + 50
    assert all(own.shape == (20,) and own.dtype == np.float64 for own in kept)


def test_columns_that_are_gathered_keep_no_file_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examples, "MOST_IN_MEMORY", 100)
    before, columns = open_files(), 100

    def pieces() -> Iterator[dict[int, NDArray[np.int64]]]:
        for piece in range(5):
            assert open_files() < before + 50
            yield {name: np.arange(10) + 10 * piece + name for name in range(columns)}

    found = examples.gathered(pieces())
    assert open_files() < before + 50
    assert all((found[name] == np.arange(50) + name).all() for name in range(columns))


def test_a_full_disk_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examples, "MOST_IN_MEMORY", 10)
    assert "has no room for" in complaint_of(lambda: examples.new_array((2**50,), "f8"))
