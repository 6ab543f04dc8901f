"""A file is there in full or not at all, and nothing is left beside it.

A lock file: one site at a time, the next one waits as long as it was told to.
"""

import errno
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fedminmax.core.files import (
    atomic_write,
    held,
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


def test_one_site_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "lock"
    with held(path) as first, held(path) as second:
        assert (first, second) == (True, False)
    with held(path) as again:
        assert again


def test_who_waits_gets_it_when_the_site_lets_go(tmp_path: Path) -> None:
    path, found = tmp_path / "lock", []

    def wait() -> None:
        with held(path, 60.0) as ours:
            found.append(ours)

    waiting = threading.Thread(target=wait)
    with held(path):
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive()
        assert found == []
    waiting.join(30.0)
    assert found == [True]


def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    program = (
        "import sys; from pathlib import Path; from fedminmax.core.files import held\n"
        "with held(Path(sys.argv[1])) as ours: print(ours, flush=True); sys.stdin.read()"
    )
    words = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        with held(path) as ours:
            assert not ours
        other.kill()
    with held(path) as ours:
        assert ours


def test_an_error_in_the_block_lets_go(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with pytest.raises(ZeroDivisionError), held(path):
        raise ZeroDivisionError
    with held(path) as again:
        assert again


def test_another_thread_may_let_go(tmp_path: Path) -> None:
    """A generator that is not used up ends wherever the garbage collector runs."""
    path = tmp_path / "lock"
    holding = held(path)
    assert holding.__enter__()
    thread = threading.Thread(target=holding.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
    with held(path) as again:
        assert again
