"""Adult as shipped: facts that its donors and others publish, and other libraries as oracles.

The demo's table of Adult: every published row once, over 40 sites of the same size.
"""

import csv
import gzip
import hashlib
import io
import lzma
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from experiments.adult.pack import NAMES, read_published
from fedminmax.core.examples import check_examples
from fedminmax.data.adult import (
    CATEGORIES,
    COLUMNS,
    GROUP_NAMES,
    NUMBERS,
    PROTECTED,
    TEST,
    TRAIN,
    Adult,
    AdultFile,
    adult_table,
    load_adult,
    packed_folder,
)
from fedminmax.data.partition import Setting, partition_by_setting
from tests.complaints import complaint_of
from tests.data.test_partition import assert_every_row_once, count_table

SHIPPED = Path(str(packed_folder()))


@pytest.fixture(scope="module")
def adult() -> Adult:
    return load_adult()


@pytest.fixture(scope="module")
def adult_with_all() -> Adult:
    return load_adult(include_protected=True)


def raw_rows(file: AdultFile) -> list[list[str]]:
    """The rows as the csv module reads them, with none of the loader's code."""
    with lzma.open(SHIPPED / f"{file.name}.xz", "rt", encoding="ascii", newline="") as stream:
        return [row for row in csv.reader(stream, skipinitialspace=True) if len(row) == 15]


def columns(rows: list[list[str]], names: tuple[str, ...]) -> NDArray[np.str_]:
    places = [COLUMNS.index(name) for name in names]
    return np.array([[row[place] for place in places] for row in rows])


def test_the_shipped_files_are_small_and_as_published() -> None:
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < 700_000
    notice = (SHIPPED / "NOTICE.md").read_text()
    assert "CC BY 4.0" in notice
    assert "10.24432/C5XW20" in notice
    for file in (TRAIN, TEST, NAMES):
        assert f"{file.sha256}  {file.name}" in notice
    names = (SHIPPED / NAMES.name).read_bytes()
    assert hashlib.sha256(names).hexdigest() == NAMES.sha256
    assert b"48842 instances" in names


def test_rows_and_positives_are_the_published_numbers(adult: Adult) -> None:
    assert (len(adult.train), len(adult.test)) == (32_561, 16_281)
    shares = [100 * float(rows.y.double().mean()) for rows in (adult.train, adult.test)]
    assert [round(share, 2) for share in shares] == [24.08, 23.62]
    # adult.names: "Probability for the label '>50K' : 23.93%" over both files.
    together = int(adult.train.y.sum() + adult.test.y.sum()) / 48_842
    assert round(100 * together, 2) == 23.93


def test_rows_without_missing_values_are_as_many_as_the_donors_say(adult: Adult) -> None:
    missing = [number for number, name in enumerate(adult.feature_names) if name.endswith("=?")]
    assert [adult.feature_names[number] for number in missing] == [
        "workclass=?",
        "occupation=?",
        "native-country=?",
    ]
    complete = [
        int((rows.x[:, missing].sum(dim=1) == 0).sum()) for rows in (adult.train, adult.test)
    ]
    assert complete == [30_162, 15_060]


@pytest.mark.parametrize("file", [TRAIN, TEST])
def test_groups_are_those_of_the_raw_text(adult: Adult, file: AdultFile) -> None:
    rows = adult.train if file is TRAIN else adult.test
    raw = raw_rows(file)
    expected = Counter(f"{row[9]} / {row[8]}" for row in raw)
    found = torch.bincount(rows.group, minlength=10).tolist()
    assert dict(zip(adult.group_names, found, strict=True)) == expected
    assert [GROUP_NAMES[a] for a in rows.group] == [f"{row[9]} / {row[8]}" for row in raw]
    assert rows.y.tolist() == [int(row[14].startswith(">50K")) for row in raw]


def test_features_are_those_of_scikit_learn(adult_with_all: Adult) -> None:
    categories = (*CATEGORIES, *PROTECTED)
    train, test = raw_rows(TRAIN), raw_rows(TEST)
    scaler = StandardScaler().fit(columns(train, NUMBERS).astype(float))
    encoder = OneHotEncoder(sparse_output=False).fit(columns(train, categories))
    known = zip(categories, encoder.categories_, strict=True)
    named = (f"{name}={word}" for name, own in known for word in own)
    assert adult_with_all.feature_names == (*NUMBERS, *named)
    for rows, raw in ((adult_with_all.train, train), (adult_with_all.test, test)):
        numbers = scaler.transform(columns(raw, NUMBERS).astype(float))
        expected = np.hstack([numbers, encoder.transform(columns(raw, categories))])
        np.testing.assert_allclose(rows.x.numpy(), expected, atol=1e-5)
        check_examples(rows.x, rows.y, rows.group, "Adult")


def test_protected_columns_are_features_only_if_asked_for(
    adult: Adult, adult_with_all: Adult
) -> None:
    hidden = ("sex=", "race=", "fnlwgt", "education=", "income")
    assert not [name for name in adult.feature_names if name.startswith(hidden)]
    features = len(adult.feature_names)
    assert adult_with_all.feature_names[:features] == adult.feature_names
    assert adult_with_all.feature_names[-2:] == ("sex=Female", "sex=Male")
    assert len(adult_with_all.feature_names) == features + 7
    assert torch.equal(adult_with_all.test.x[:, :features], adult.test.x)


def test_logistic_regression_is_right_for_85_percent_of_the_test_rows(adult: Adult) -> None:
    model = LogisticRegression(max_iter=1000).fit(adult.train.x.numpy(), adult.train.y.numpy())
    accuracy = model.score(adult.test.x.numpy(), adult.test.y.numpy())
    assert accuracy == pytest.approx(0.85, abs=0.005)


def test_settings_over_40_sites_use_every_row_of_unequal_groups(adult: Adult) -> None:
    group = adult.train.group
    sizes = torch.bincount(group)
    tables = {}
    for setting in Setting:
        parts = partition_by_setting(setting, group, 40, seed=0)
        assert_every_row_once(group, parts)
        tables[setting] = count_table(group, parts)
    # Equal shares: of every group, a fortieth of its rows, rounded down or up.
    assert bool((tables[Setting.ESG] >= sizes // 40).all())
    assert bool((tables[Setting.ESG] <= (sizes + 39) // 40).all())
    has = {setting: table > 0 for setting, table in tables.items()}
    assert bool(has[Setting.ESG].all())
    assert has[Setting.SSG].sum(dim=1).tolist() == [1] * 40
    assert has[Setting.SSG].sum(dim=0).tolist() == [4] * 10
    women, men = has[Setting.PSG][:20], has[Setting.PSG][20:]
    assert bool(women[:, :5].all())
    assert not bool(women[:, 5:].any())
    assert bool(men[:, 5:].all())
    assert not bool(men[:, :5].any())


def test_only_the_published_files_are_packed(tmp_path: Path) -> None:
    content = (SHIPPED / NAMES.name).read_bytes()
    assert "no adult.names" in complaint_of(lambda: read_published(tmp_path, NAMES))
    (tmp_path / NAMES.name).write_bytes(content + b"\n")
    assert "not the published file" in complaint_of(lambda: read_published(tmp_path, NAMES))
    (tmp_path / NAMES.name).write_bytes(content)
    assert read_published(tmp_path, NAMES) == content
    (tmp_path / f"{NAMES.name}.gz").write_bytes(gzip.compress(content))
    (tmp_path / NAMES.name).unlink()
    assert read_published(tmp_path, NAMES) == content


def test_a_missing_damaged_or_changed_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "adult.data.xz"
    assert "adult.data.xz is missing" in complaint_of(lambda: load_adult(folder=tmp_path))
    whole = (SHIPPED / "adult.data.xz").read_bytes()
    path.write_bytes(whole[:-100])
    assert "adult.data.xz is damaged" in complaint_of(lambda: load_adult(folder=tmp_path))
    changed = lzma.decompress(whole).replace(b"39,", b"93,", 1)
    path.write_bytes(lzma.compress(changed, preset=0))
    assert "differs from the published file" in complaint_of(lambda: load_adult(folder=tmp_path))


def test_every_row_is_there_once_at_one_of_forty_sites() -> None:
    rows = list(csv.DictReader(io.StringIO(adult_table())))
    sites = Counter(row["site"] for row in rows)
    assert len(sites) == 40
    assert max(sites.values()) - min(sites.values()) <= 1
    adult = load_adult()
    groups = torch.cat([adult.train.group, adult.test.group])
    label = torch.cat([adult.train.y, adult.test.y])
    found = Counter((f"{row['sex']} / {row['race']}", row["income"] == ">50K") for row in rows)
    for number, name in enumerate(GROUP_NAMES):
        for outcome in (0, 1):
            expected = int(((groups == number) & (label == outcome)).sum())
            assert found[name, bool(outcome)] == expected
