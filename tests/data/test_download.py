"""Downloads over real HTTP: broken off, damaged, refused; nothing half under its name."""

from pathlib import Path

import pytest

from fedminmax.data import fashion_mnist
from tests.cli.publisher import Publisher, published
from tests.complaints import complaint_of
from tests.data.small_fashion import EXCERPT

pytestmark = pytest.mark.usefixtures("_fashion_excerpt")


def names() -> list[str]:
    return [f"{file.name}.gz" for file in fashion_mnist.FILES]


def fetch(folder: Path, address: str) -> list[fashion_mnist.Fetched]:
    return list(fashion_mnist.download_fashion_mnist(folder, address))


def test_files_arrive_whole_with_their_progress(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    with published(Publisher(EXCERPT)) as address:
        steps = fetch(folder, address)
    assert {path.name for path in folder.iterdir()} == set(names())
    for name in names():
        assert (folder / name).read_bytes() == (EXCERPT / name).read_bytes()
        last = [step for step in steps if step.name == name][-1]
        assert last.done == last.total == (EXCERPT / name).stat().st_size


def test_a_download_that_breaks_off_leaves_no_file_of_its_name(tmp_path: Path) -> None:
    publisher = Publisher(EXCERPT, names()[1], breaks_after=100)
    with published(publisher) as address:
        assert names()[1] in complaint_of(lambda: fetch(tmp_path, address))
        assert [path.name for path in tmp_path.iterdir()] == names()[:1]
        publisher.broken_name = None
        assert {step.name for step in fetch(tmp_path, address)} == set(names()[1:])


def test_a_wrong_file_is_refused_and_removed(tmp_path: Path) -> None:
    wrong, folder = tmp_path / "wrong", tmp_path / "new"
    wrong.mkdir()
    for name in names():
        (wrong / name).write_bytes((EXCERPT / names()[-1]).read_bytes())
    with published(Publisher(wrong)) as address:
        complaint = complaint_of(lambda: fetch(folder, address))
    assert "is not the published file" in complaint
    assert list(folder.iterdir()) == []


def test_no_server_is_a_one_line_complaint(tmp_path: Path) -> None:
    complaint = complaint_of(lambda: fetch(tmp_path, "http://127.0.0.1:9"))
    assert complaint.startswith("cannot download http://127.0.0.1:9/train-images")
    assert list(tmp_path.iterdir()) == []
