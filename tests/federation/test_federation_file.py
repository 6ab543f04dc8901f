"""A person's kit knows the sites of its federation."""

from pathlib import Path

import pytest

from fedminmax.federation.federation_file import SITES_FILE, read_sites_of, write_sites_of
from tests.complaints import complaint_of


def test_sites_come_back_in_their_order(tmp_path: Path) -> None:
    write_sites_of(tmp_path, ["west", "north", "a-1"])
    assert read_sites_of(tmp_path) == ("west", "north", "a-1")


@pytest.mark.parametrize("name", [".", "nowhere"])
def test_another_folder_is_no_persons_kit(name: str, tmp_path: Path) -> None:
    assert "is no person's kit" in complaint_of(lambda: read_sites_of(tmp_path / name))


@pytest.mark.parametrize("content", ["", "{", "3", "null"])
def test_a_damaged_list_is_a_mistake_in_one_line(content: str, tmp_path: Path) -> None:
    (tmp_path / SITES_FILE).write_text(content)
    assert SITES_FILE in complaint_of(lambda: read_sites_of(tmp_path))
