"""FashionMNIST on a machine that has none: downloaded once, or a line that says what to do."""

import shutil
from functools import partial
from pathlib import Path

import pytest
import torch

from fedminmax.cli import study_runs
from fedminmax.cli.study_runs import fashion_mnist
from fedminmax.data.fashion_mnist import (
    FILES,
    download_fashion_mnist,
    load_fashion_mnist,
)
from tests.cli.publisher import Publisher, published
from tests.complaints import complaint_of
from tests.data.small_fashion import EXCERPT, TRAIN_ROWS

pytestmark = pytest.mark.usefixtures("_fashion_excerpt")


@pytest.fixture
def empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to search in, and a publisher that does not answer."""
    nobody = partial(download_fashion_mnist, publisher="http://127.0.0.1:9")
    monkeypatch.setattr(study_runs, "folders_to_search", lambda _: [tmp_path])
    monkeypatch.setattr(study_runs, "download_fashion_mnist", nobody)
    return tmp_path


def test_without_files_and_network_it_says_what_to_do(empty_machine: Path) -> None:
    complaint = complaint_of(lambda: fashion_mnist(empty_machine))
    assert complaint.startswith("FashionMNIST is not on this machine and cannot download")
    assert "install Debian's package dataset-fashion-mnist" in complaint
    assert "put the four files train-images-idx3-ubyte.gz, " in complaint
    assert str(empty_machine) in complaint
    assert list(empty_machine.iterdir()) == []


def test_what_is_there_is_used_without_asking_anyone(empty_machine: Path) -> None:
    for file in FILES:
        shutil.copy(EXCERPT / f"{file.name}.gz", empty_machine)
    assert torch.equal(fashion_mnist(empty_machine).test.y, load_fashion_mnist(EXCERPT).test.y)


def test_a_download_that_broke_off_in_a_chosen_folder_goes_on_there(
    empty_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = f"{FILES[1].name}.gz"
    publisher = Publisher(EXCERPT, second, breaks_after=100)
    with published(publisher) as address:
        from_publisher = partial(download_fashion_mnist, publisher=address)
        monkeypatch.setattr(study_runs, "download_fashion_mnist", from_publisher)
        complaint = complaint_of(lambda: fashion_mnist(empty_machine))
        assert complaint.startswith(f"{empty_machine} lacks {FILES[1].name}, ")
        assert f"{second} is not the published file" in complaint
        publisher.broken_name = None
        assert len(fashion_mnist(empty_machine).train) == TRAIN_ROWS
    assert {path.name for path in empty_machine.iterdir()} == {f"{f.name}.gz" for f in FILES}


def test_a_chosen_folder_without_the_files_is_said_to_have_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fashion_mnist(tmp_path / "typo")
    assert capsys.readouterr().err == (
        f"fedminmax: {tmp_path / 'typo'} has no FashionMNIST; using {EXCERPT}\n"
    )
    fashion_mnist(EXCERPT)
    assert capsys.readouterr().err == ""


def test_a_file_is_not_a_folder_of_data(tmp_path: Path) -> None:
    (tmp_path / "images.gz").write_bytes(b"")
    complaint = complaint_of(lambda: fashion_mnist(tmp_path / "images.gz"))
    assert "images.gz is a file; give the folder" in complaint
