"""A file is there in full or not at all, and nothing is left beside it.

A lock file: one site at a time, the next one waits as long as it was told to.

Logs of JSON lines: what a crash cut off does not count, damage is told in one line.
"""

import errno
import os
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest

from fedminmax.core.files import (
    JsonLog,
    atomic_write,
    held,
    read_lines,
    write_bytes,
    write_copy,
    write_json,
    write_json_once,
    write_text,
)
from tests.complaints import complaint_of


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


@dataclass(frozen=True)
class Record:
    round: int
    word: str

    @classmethod
    def from_json(cls, entry: Any) -> Self:
        return cls(entry["round"], entry["word"].strip())

    def as_json(self) -> dict[str, Any]:
        return {"round": self.round, "word": self.word}


RECORDS = [Record(1, "one"), Record(2, "zwölf"), Record(5, "a\u2028b\nc")]


@pytest.fixture
def log(tmp_path: Path) -> JsonLog[Record]:
    log = JsonLog(tmp_path / "log.jsonl", Record)
    log.write(RECORDS[:2])
    log.add(RECORDS[2])
    return log


def test_what_was_written_and_appended_comes_back(log: JsonLog[Record], tmp_path: Path) -> None:
    assert log.read() == RECORDS
    assert len(read_lines(log.path)) == 3
    assert JsonLog(tmp_path / "nothing.jsonl", Record).read() == []


def test_separators_that_are_no_line_ends_do_not_cut_a_line(log: JsonLog[Record]) -> None:
    log.path.write_text('{"round": 1, "word": "a\u2028b"}\n', encoding="utf-8")
    assert log.read() == [Record(1, "a\u2028b")]


@pytest.mark.parametrize("rest", [b'{"round": 6, "wo', b'{"round": 6, "word": "\xc3', b"\0\0"])
def test_a_last_line_without_an_end_is_not_part_of_it(rest: bytes, log: JsonLog[Record]) -> None:
    with log.path.open("ab") as file:
        file.write(rest)
    assert log.read() == RECORDS
    assert log.drop_after(5) == RECORDS
    log.add(Record(6, "six"))
    assert log.read() == [*RECORDS, Record(6, "six")]


def test_later_rounds_are_dropped_and_the_others_stay_as_they_are(log: JsonLog[Record]) -> None:
    before = log.path.read_bytes()
    assert log.drop_after(4) == RECORDS[:2]
    assert log.path.read_bytes() == b"".join(before.splitlines(keepends=True)[:2])
    assert log.drop_after(0) == []
    assert log.path.read_bytes() == b""
    assert [entry.name for entry in log.path.parent.iterdir()] == [log.path.name]


@pytest.mark.parametrize(
    "line", [b"\xff\xfe", b"\0\0", b"{", b"", b"[]", b"3", b'{"round": 1}', b'{"round":1,"word":2}']
)
def test_damage_is_told_and_the_file_stays(line: bytes, log: JsonLog[Record]) -> None:
    damaged = line + b"\n" + log.path.read_bytes()
    log.path.write_bytes(damaged)
    told = complaint_of(log.read)
    assert told.startswith(f"{log.path} is damaged")
    assert told.endswith("; remove it, and the run goes on from its checkpoint")
    assert complaint_of(lambda: log.drop_after(5)) == told
    assert log.path.read_bytes() == damaged


def test_of_the_end_only_whole_lines_count(log: JsonLog[Record]) -> None:
    size = log.path.stat().st_size
    assert log.read_after(0, size) == RECORDS
    assert log.read_after(0, size - 1) == RECORDS[1:]
    assert log.read_after(RECORDS[0].round, size) == RECORDS[1:]
    # Not even where the end begins within a letter of several bytes.
    log.path.write_text('{"round": 1, "word": "ö"}\n{"round": 2, "word": "b"}\n', encoding="utf-8")
    place = log.path.read_bytes().index("ö".encode()) + 1
    assert log.read_after(0, log.path.stat().st_size - place) == [Record(2, "b")]


def test_a_log_comes_with_its_first_record(tmp_path: Path) -> None:
    log = JsonLog(tmp_path / "new" / "log.jsonl", Record)
    assert log.drop_after(3) == []
    assert log.read_on(0) == ([], 0)
    assert list(tmp_path.iterdir()) == []
    log.add(RECORDS[0])
    assert log.read() == RECORDS[:1]


def test_read_on_from_where_one_was(log: JsonLog[Record]) -> None:
    """With what another writer added since; what a crash cut off is gone afterwards."""
    found, place = log.read_on(0)
    assert (found, place) == (RECORDS, log.path.stat().st_size)
    log.add(Record(6, "six"))
    whole = log.path.read_bytes()
    with log.path.open("ab") as file:
        file.write(b'{"round": 7')
    assert log.read_on(place) == ([Record(6, "six")], len(whole))
    assert log.path.read_bytes() == whole
