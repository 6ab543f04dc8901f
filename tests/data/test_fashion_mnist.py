"""FashionMNIST: facts that its authors publish, and, on an excerpt, files that are not it."""

import gzip
import shutil
from pathlib import Path

import pytest
import torch

from fedminmax.cli.study_runs import fashion_mnist
from fedminmax.core.errors import InputError
from fedminmax.core.examples import Examples
from fedminmax.data.fashion_mnist import (
    DEBIAN_FOLDER,
    FILES,
    GROUP_NAMES,
    TEST_IMAGES,
    TEST_LABELS,
    TRAIN_IMAGES,
    TRAIN_LABELS,
    FashionMnist,
    IdxFile,
    cache_folder,
    choose_rows,
    find_fashion_mnist,
    folders_to_search,
    load_fashion_mnist,
)
from fedminmax.data.partition import Setting, partition_by_setting
from tests.complaints import complaint_of
from tests.data.small_fashion import EXCERPT, TEST_ROWS, TRAIN_ROWS, use_excerpt
from tests.needs import lacking


@pytest.fixture(scope="module")
def data() -> FashionMnist:
    """The published files, downloaded if the machine has no copy."""
    try:
        return fashion_mnist(None)
    except InputError as error:
        lacking(str(error))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> FashionMnist:
    use_excerpt(monkeypatch)
    return load_fashion_mnist(EXCERPT)


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of our own with all four files of the excerpt."""
    use_excerpt(monkeypatch)
    for file in FILES:
        shutil.copy(EXCERPT / f"{file.name}.gz", tmp_path)
    return tmp_path


@pytest.mark.slow
def test_counts_are_those_of_the_publisher(data: FashionMnist) -> None:
    assert data.train.x.shape == (60_000, 1, 28, 28)
    assert data.test.x.shape == (10_000, 1, 28, 28)
    assert torch.bincount(data.train.group).tolist() == [6000] * 10
    assert torch.bincount(data.test.group).tolist() == [1000] * 10
    assert torch.equal(data.train.y, data.train.group)
    assert len(GROUP_NAMES) == 10


@pytest.mark.slow
def test_training_pixels_are_standardised_and_test_pixels_by_the_same_numbers(
    data: FashionMnist,
) -> None:
    assert float(data.train.x.double().mean()) == pytest.approx(0.0, abs=1e-3)
    assert float(data.train.x.double().std()) == pytest.approx(1.0, abs=1e-3)
    assert float(data.train.x.min()) == float(data.test.x.min()) == pytest.approx(-0.286 / 0.353)
    assert float(data.train.x.max()) == pytest.approx((1 - 0.286) / 0.353)


@pytest.mark.slow
def test_images_belong_to_their_labels(data: FashionMnist) -> None:
    """A nearest-mean classifier reaches about 68 % on these data; shuffled labels give 10 %."""
    means = torch.stack([data.train.x[data.train.y == a].mean(dim=0).flatten() for a in range(10)])
    nearest = torch.cdist(data.test.x.flatten(1), means).argmin(dim=1)
    assert 0.65 < float((nearest == data.test.y).float().mean()) < 0.71


@pytest.mark.slow
def test_the_papers_partitions(data: FashionMnist) -> None:
    group = data.train.group
    equal = partition_by_setting(Setting.ESG, group, 40, seed=3)
    assert {len(rows) for rows in equal} == {1500}
    assert all(torch.bincount(group[rows]).tolist() == [150] * 10 for rows in equal)
    single = partition_by_setting(Setting.SSG, group, 40, seed=3)
    owners = [sorted(set(group[rows].tolist())) for rows in single]
    assert all(owners.count([a]) == 4 for a in range(10))
    assert len({len(rows) for rows in single}) == 40
    partial = partition_by_setting(Setting.PSG, group, 40, seed=3)
    owners = [sorted(set(group[rows].tolist())) for rows in partial]
    assert owners.count([0, 1, 2, 3, 4]) == owners.count([5, 6, 7, 8, 9]) == 20
    assert len({len(rows) for rows in partial}) == 40
    for parts in (equal, single, partial):
        assert torch.equal(torch.cat(parts).sort().values, torch.arange(60_000))


def test_the_excerpt_is_of_the_published_images(small: FashionMnist) -> None:
    assert small.train.x.shape == (TRAIN_ROWS, 1, 28, 28)
    assert small.test.x.shape == (TEST_ROWS, 1, 28, 28)
    assert torch.bincount(small.train.group).tolist() == [TRAIN_ROWS // 10] * 10
    assert torch.bincount(small.test.group).tolist() == [TEST_ROWS // 10] * 10


@pytest.mark.slow
def test_the_excerpt_has_the_first_images_of_each_class(
    data: FashionMnist, small: FashionMnist
) -> None:
    for all_rows, few in ((data.train, small.train), (data.test, small.test)):
        for label in range(10):
            own = few.x[few.y == label]
            assert torch.equal(own, all_rows.x[all_rows.y == label][: len(own)])


def test_choosing_rows_is_stratified_and_seeded(small: FashionMnist) -> None:
    chosen = choose_rows(small.train, 200, seed=5)
    assert torch.bincount(chosen.group).tolist() == [20] * 10
    again = choose_rows(small.train, 200, seed=5)
    assert torch.equal(chosen.x, again.x)
    assert not torch.equal(chosen.x, choose_rows(small.train, 200, seed=6).x)
    assert choose_rows(small.train, TRAIN_ROWS, seed=5) is small.train


@pytest.mark.parametrize("rows", [0, 5, 201, 60_010])
def test_impossible_numbers_of_rows(rows: int) -> None:
    few = Examples(torch.zeros(60_000, 1), torch.zeros(60_000), torch.arange(60_000) % 10)
    assert f"rows = {rows}; give a multiple of 10" in complaint_of(
        lambda: choose_rows(few, rows, 0)
    )


def test_plain_files_are_read_like_gzipped_ones(copy: Path, small: FashionMnist) -> None:
    packed = copy / f"{TEST_IMAGES.name}.gz"
    (copy / TEST_IMAGES.name).write_bytes(gzip.decompress(packed.read_bytes()))
    packed.unlink()
    assert torch.equal(load_fashion_mnist(str(copy)).test.x, small.test.x)


def test_a_truncated_archive_is_refused_by_name(copy: Path) -> None:
    path = copy / f"{TEST_LABELS.name}.gz"
    path.write_bytes(path.read_bytes()[:-100])
    complaint = complaint_of(lambda: load_fashion_mnist(copy))
    assert path.name in complaint
    assert "truncated or corrupt" in complaint


def test_a_shortened_plain_file_is_refused_with_its_size(copy: Path) -> None:
    packed = copy / f"{TEST_LABELS.name}.gz"
    content = gzip.decompress(packed.read_bytes())
    packed.unlink()
    (copy / TEST_LABELS.name).write_bytes(content[:-1])
    complaint = complaint_of(lambda: load_fashion_mnist(copy))
    assert f"has {TEST_ROWS + 7} bytes inside instead of {TEST_ROWS + 8}" in complaint


def test_a_single_changed_pixel_is_noticed(copy: Path) -> None:
    path = copy / f"{TEST_IMAGES.name}.gz"
    content = bytearray(gzip.decompress(path.read_bytes()))
    content[5000] ^= 1
    path.write_bytes(gzip.compress(bytes(content), compresslevel=1))
    assert "is corrupt (SHA-256" in complaint_of(lambda: load_fashion_mnist(copy))


@pytest.mark.parametrize(
    ("one", "other"), [(TRAIN_LABELS, TEST_LABELS), (TRAIN_IMAGES, TRAIN_LABELS)]
)
def test_swapped_files_are_called_what_they_are(copy: Path, one: IdxFile, other: IdxFile) -> None:
    first, second = copy / f"{one.name}.gz", copy / f"{other.name}.gz"
    spare = copy / "spare"
    first.rename(spare)
    second.rename(first)
    spare.rename(second)
    complaint = complaint_of(lambda: load_fashion_mnist(copy))
    assert f"{first.name} holds the content of {second.stem}" in complaint


def test_the_users_word_comes_first_then_the_variable_then_debian_then_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDMINMAX_DATA", str(tmp_path / "variable"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert folders_to_search(tmp_path / "word") == [
        tmp_path / "word",
        tmp_path / "word" / "fashion-mnist",
        tmp_path / "variable",
        tmp_path / "variable" / "fashion-mnist",
        DEBIAN_FOLDER,
        tmp_path / "cache" / "fedminmax" / "fashion-mnist",
    ]


def test_the_first_folder_with_all_files_is_taken(copy: Path, tmp_path: Path) -> None:
    nothing = tmp_path / "nothing"
    assert find_fashion_mnist([nothing, copy, DEBIAN_FOLDER], nothing) == copy
    assert find_fashion_mnist([nothing], nothing) is None


def test_a_folder_with_some_of_the_files_is_told_what_it_lacks(copy: Path) -> None:
    (copy / f"{TEST_LABELS.name}.gz").unlink()
    complaint = complaint_of(lambda: find_fashion_mnist([copy, DEBIAN_FOLDER], cache_folder()))
    assert f"lacks {TEST_LABELS.name}" in complaint


def test_the_target_of_a_download_is_completed_before_another_folder_is_taken(copy: Path) -> None:
    (copy / f"{TEST_LABELS.name}.gz").unlink()
    assert find_fashion_mnist([copy, DEBIAN_FOLDER], copy) is None


def test_an_unfinished_download_in_the_cache_is_not_a_fault(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(copy / "cache"))
    cache_folder().mkdir(parents=True)
    shutil.copy(copy / f"{TEST_LABELS.name}.gz", cache_folder())
    assert find_fashion_mnist([cache_folder()], copy) is None
