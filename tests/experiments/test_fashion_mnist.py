"""FashionMNIST: facts that its authors publish, and, on an excerpt, files that are not it.

Downloads over real HTTP: broken off, damaged, refused; nothing half under its name.

FashionMNIST on a machine that has none: downloaded once, or a line that says what to do.
"""

import gzip
import shutil
from functools import partial
from pathlib import Path

import pytest
import torch

from experiments.paper import fashion_mnist as module
from experiments.paper.fashion_mnist import (
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
    download_fashion_mnist,
    fashion_mnist,
    find_fashion_mnist,
    folders_to_search,
    load_fashion_mnist,
)
from fedminmax.core.errors import InputError
from fedminmax.core.examples import Examples
from fedminmax.data.partition import Setting, partition_by_setting
from tests.complaints import complaint_of
from tests.experiments.small_fashion import (
    EXCERPT,
    TEST_ROWS,
    TRAIN_ROWS,
    Publisher,
    published,
    use_excerpt,
)
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
    """A nearest-mean classifier reaches about 68% on these data; shuffled labels give 10%."""
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


def names() -> list[str]:
    return [f"{file.name}.gz" for file in module.FILES]


def fetch(folder: Path, address: str) -> list[module.Fetched]:
    return list(module.download_fashion_mnist(folder, address))


@pytest.mark.usefixtures("_fashion_excerpt")
def test_files_arrive_whole_with_their_progress(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    with published(Publisher(EXCERPT)) as address:
        steps = fetch(folder, address)
    assert {path.name for path in folder.iterdir()} == set(names())
    for name in names():
        assert (folder / name).read_bytes() == (EXCERPT / name).read_bytes()
        last = [step for step in steps if step.name == name][-1]
        assert last.done == last.total == (EXCERPT / name).stat().st_size


@pytest.mark.usefixtures("_fashion_excerpt")
def test_a_download_that_breaks_off_leaves_no_file_of_its_name(tmp_path: Path) -> None:
    publisher = Publisher(EXCERPT, names()[1], breaks_after=100)
    with published(publisher) as address:
        assert names()[1] in complaint_of(lambda: fetch(tmp_path, address))
        assert [path.name for path in tmp_path.iterdir()] == names()[:1]
        publisher.broken_name = None
        assert {step.name for step in fetch(tmp_path, address)} == set(names()[1:])


@pytest.mark.usefixtures("_fashion_excerpt")
def test_a_wrong_file_is_refused_and_removed(tmp_path: Path) -> None:
    wrong, folder = tmp_path / "wrong", tmp_path / "new"
    wrong.mkdir()
    for name in names():
        (wrong / name).write_bytes((EXCERPT / names()[-1]).read_bytes())
    with published(Publisher(wrong)) as address:
        complaint = complaint_of(lambda: fetch(folder, address))
    assert "is not the published file" in complaint
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("_fashion_excerpt")
def test_no_server_is_a_one_line_complaint(tmp_path: Path) -> None:
    complaint = complaint_of(lambda: fetch(tmp_path, "http://127.0.0.1:9"))
    assert complaint.startswith("cannot download http://127.0.0.1:9/train-images")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to search in, and a publisher that does not answer."""
    nobody = partial(download_fashion_mnist, publisher="http://127.0.0.1:9")
    monkeypatch.setattr(module, "folders_to_search", lambda _: [tmp_path])
    monkeypatch.setattr(module, "download_fashion_mnist", nobody)
    return tmp_path


@pytest.mark.usefixtures("_fashion_excerpt")
def test_without_files_and_network_it_says_what_to_do(empty_machine: Path) -> None:
    complaint = complaint_of(lambda: fashion_mnist(empty_machine))
    assert complaint.startswith("FashionMNIST is not on this machine and cannot download")
    assert "install Debian's package dataset-fashion-mnist" in complaint
    assert "put the four files train-images-idx3-ubyte.gz, " in complaint
    assert str(empty_machine) in complaint
    assert list(empty_machine.iterdir()) == []


@pytest.mark.usefixtures("_fashion_excerpt")
def test_what_is_there_is_used_without_asking_anyone(empty_machine: Path) -> None:
    for file in FILES:
        shutil.copy(EXCERPT / f"{file.name}.gz", empty_machine)
    assert torch.equal(fashion_mnist(empty_machine).test.y, load_fashion_mnist(EXCERPT).test.y)


@pytest.mark.usefixtures("_fashion_excerpt")
def test_a_download_that_broke_off_in_a_chosen_folder_goes_on_there(
    empty_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = f"{FILES[1].name}.gz"
    publisher = Publisher(EXCERPT, second, breaks_after=100)
    with published(publisher) as address:
        from_publisher = partial(download_fashion_mnist, publisher=address)
        monkeypatch.setattr(module, "download_fashion_mnist", from_publisher)
        complaint = complaint_of(lambda: fashion_mnist(empty_machine))
        assert complaint.startswith(f"{empty_machine} lacks {FILES[1].name}, ")
        assert f"{second} is not the published file" in complaint
        publisher.broken_name = None
        assert len(fashion_mnist(empty_machine).train) == TRAIN_ROWS
    assert {path.name for path in empty_machine.iterdir()} == {f"{f.name}.gz" for f in FILES}


@pytest.mark.usefixtures("_fashion_excerpt")
def test_a_chosen_folder_without_the_files_is_said_to_have_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fashion_mnist(tmp_path / "typo")
    assert capsys.readouterr().err == (
        f"fedminmax: {tmp_path / 'typo'} has no FashionMNIST; using {EXCERPT}\n"
    )
    fashion_mnist(EXCERPT)
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("_fashion_excerpt")
def test_a_file_is_not_a_folder_of_data(tmp_path: Path) -> None:
    (tmp_path / "images.gz").write_bytes(b"")
    complaint = complaint_of(lambda: fashion_mnist(tmp_path / "images.gz"))
    assert "images.gz is a file; give the folder" in complaint
