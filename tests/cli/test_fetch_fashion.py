"""FashionMNIST on a machine that has none: downloaded once, or a line that says what to do."""

import shutil
from functools import partial
from pathlib import Path

import pytest
import torch

from fedminmax.cli import fetch_fashion
from fedminmax.cli.fetch_fashion import fashion_mnist
from fedminmax.data.fashion_mnist import (
    FILES,
    download_fashion_mnist,
    find_fashion_mnist,
    folders_to_search,
)
from tests.complaints import complaint_of


@pytest.fixture
def empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to search in, and a publisher that does not answer."""
    nobody = partial(download_fashion_mnist, publisher="http://127.0.0.1:9")
    monkeypatch.setattr(fetch_fashion, "folders_to_search", lambda _: [tmp_path])
    monkeypatch.setattr(fetch_fashion, "download_fashion_mnist", nobody)
    return tmp_path


def test_without_files_and_network_it_says_what_to_do(empty_machine: Path) -> None:
    complaint = complaint_of(lambda: fashion_mnist(empty_machine))
    assert complaint.startswith("FashionMNIST is nowhere on this machine and cannot download")
    assert "install Debian's package dataset-fashion-mnist" in complaint
    assert "put the four files train-images-idx3-ubyte.gz, " in complaint
    assert str(empty_machine) in complaint
    assert list(empty_machine.iterdir()) == []


def test_what_is_there_is_used_without_asking_anyone(empty_machine: Path) -> None:
    source = find_fashion_mnist(folders_to_search(None))
    assert source is not None
    for file in FILES:
        shutil.copy(source / f"{file.name}.gz", empty_machine)
    assert torch.equal(fashion_mnist(empty_machine).test.y, fashion_mnist(None).test.y)
