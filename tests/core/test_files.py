"""A file is there in full or not at all, and nothing is left beside it."""

import errno
import os
import socket
from pathlib import Path

import pytest

from fedminmax.core.files import (
    atomic_write,
    write_bytes,
    write_copy,
    write_json,
    write_json_once,
    write_text,
)


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_what_is_written_is_read_back_and_folders_are_made(tmp_path: Path) -> None:
    write_text(tmp_path / "a" / "b.txt", "Zürich\n")
    assert (tmp_path / "a" / "b.txt").read_bytes() == "Zürich\n".encode()
    write_bytes(tmp_path / "c.bin", b"\x00\xff")
    write_copy(tmp_path / "c.bin", tmp_path / "d" / "e.bin")
    assert (tmp_path / "d" / "e.bin").read_bytes() == b"\x00\xff"
    write_json(tmp_path / "f.json", {"a": 1})
    assert (tmp_path / "f.json").read_text() == '{\n  "a": 1\n}\n'


def test_of_two_first_files_the_first_one_stays(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    write_json_once(path, 1)
    write_json_once(path, 2)
    assert path.read_text() == "1\n"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("missing", ["write", "fsync"])
def test_a_full_disk_leaves_what_was_there_and_nothing_beside(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, source = tmp_path / "a.json", tmp_path / "source"
    source.write_text("new")
    path.write_text("old")
    own = f"{socket.gethostname()}-{os.getpid()}.partial"
    beside = tmp_path / f"a.json.{own}"
    first = tmp_path / "first.json"
    if missing == "write":
        # All that is written to this device is refused, once it is opened.
        beside.symlink_to("/dev/full")
        (tmp_path / f"first.json.{own}").symlink_to("/dev/full")
    else:
        monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="space"):
        write_json(path, "new")
    with pytest.raises(OSError, match="space"):
        write_json_once(first, "new")
    assert path.read_text() == "old"
    assert sorted(tmp_path.iterdir()) == [path, source]


def test_the_one_before_is_kept_under_another_name_once_the_new_one_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, previous = tmp_path / "a", tmp_path / "previous"
    write_text(path, "1")
    with atomic_write(path, backup=previous) as beside:
        beside.write_text("2")
    assert (path.read_text(), previous.read_text()) == ("2", "1")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="space"), atomic_write(path, backup=previous) as beside:
        beside.write_text("3")
    assert (path.read_text(), previous.read_text()) == ("2", "1")
