"""The description of a federation names its mistakes; a person's kit knows the sites."""

from pathlib import Path

import pytest

from fedminmax.network.flare.federation_file import (
    SITES_FILE,
    read_federation_file,
    read_sites_of,
    write_sites_of,
)
from tests.cli.kits import DESCRIBED
from tests.complaints import complaint_of


def test_sites_come_back_in_their_order(tmp_path: Path) -> None:
    write_sites_of(tmp_path, ["west", "north", "a-1"])
    assert read_sites_of(tmp_path) == ("west", "north", "a-1")


@pytest.mark.parametrize("name", [".", "nowhere"])
def test_another_folder_is_no_persons_kit(name: str, tmp_path: Path) -> None:
    assert "is not a person's kit" in complaint_of(lambda: read_sites_of(tmp_path / name))


@pytest.mark.parametrize("content", ["", "{", "3", "null"])
def test_a_damaged_list_is_a_mistake_in_one_line(content: str, tmp_path: Path) -> None:
    (tmp_path / SITES_FILE).write_text(content)
    assert SITES_FILE in complaint_of(lambda: read_sites_of(tmp_path))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("port = 18444", "hots = 'a'", "[server] 'hots' is unknown; did you mean 'host'?"),
        ("[server]", "sitez = []\n[server]", "'sitez' is unknown; did you mean 'sites'?"),
        ("[server]", "x = 1\n[server]", "'x' is unknown; there is 'server', 'sites', 'people'"),
        ("sites =", "# sites =", "sites is missing; add it"),
        ('["north", "south"]', "3", "sites is 3; give a list in brackets"),
        ("[server]\nport = 18444", "server = 3", "section [server] is 3; give a section"),
    ],
)
def test_a_mistake_names_its_key(old: str, new: str, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "federation.toml"
    path.write_text(DESCRIBED.replace(old, new))
    assert complaint_of(lambda: read_federation_file(path)).startswith(f"{path}: {expected}")


def test_another_encoding_than_utf8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "federation.toml"
    path.write_bytes(f"# Zürich\n{DESCRIBED}".encode("latin-1"))
    assert f"{path} is not in UTF-8" in complaint_of(lambda: read_federation_file(path))
