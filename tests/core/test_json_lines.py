"""Logs of JSON lines: what a crash cut off does not count, damage is told in one line."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fedminmax.core.files import (
    append_entry,
    keep_rounds,
    read_lines,
    read_records,
    read_rounds_after,
    write_entries,
)
from tests.complaints import complaint_of


@dataclass(frozen=True)
class Record:
    round: int
    word: str


def record_of(entry: Any) -> Record:
    return Record(entry["round"], entry["word"].strip())


RECORDS = [Record(1, "one"), Record(2, "zwölf"), Record(5, "a\u2028b\nc")]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.jsonl"
    write_entries(path, map(vars, RECORDS[:2]))
    append_entry(path, vars(RECORDS[2]))
    return path


def test_what_was_written_and_appended_comes_back(log: Path, tmp_path: Path) -> None:
    assert read_records(log, record_of) == RECORDS
    assert len(read_lines(log)) == 3
    assert read_records(tmp_path / "nothing.jsonl", record_of) == []


def test_separators_that_are_no_line_ends_do_not_cut_a_line(log: Path) -> None:
    log.write_text('{"round": 1, "word": "a\u2028b"}\n', encoding="utf-8")
    assert read_records(log, record_of) == [Record(1, "a\u2028b")]


@pytest.mark.parametrize("rest", [b'{"round": 6, "wo', b'{"round": 6, "word": "\xc3', b"\0\0"])
def test_a_last_line_without_an_end_is_not_part_of_it(rest: bytes, log: Path) -> None:
    with log.open("ab") as file:
        file.write(rest)
    assert read_records(log, record_of) == RECORDS
    assert keep_rounds(log, record_of, 5) == RECORDS
    append_entry(log, {"round": 6, "word": "six"})
    assert read_records(log, record_of) == [*RECORDS, Record(6, "six")]


def test_later_rounds_are_dropped_and_the_others_stay_as_they_are(log: Path) -> None:
    before = log.read_bytes()
    assert keep_rounds(log, record_of, 4) == RECORDS[:2]
    assert log.read_bytes() == b"".join(before.splitlines(keepends=True)[:2])
    assert keep_rounds(log, record_of, 0) == []
    assert log.read_bytes() == b""
    assert [entry.name for entry in log.parent.iterdir()] == [log.name]


@pytest.mark.parametrize(
    "line", [b"\xff\xfe", b"\0\0", b"{", b"", b"[]", b"3", b'{"round": 1}', b'{"round":1,"word":2}']
)
def test_damage_is_told_and_the_file_stays(line: bytes, log: Path) -> None:
    damaged = line + b"\n" + log.read_bytes()
    log.write_bytes(damaged)
    told = complaint_of(lambda: read_records(log, record_of))
    assert told.startswith(f"{log} is damaged")
    assert told.endswith("; remove it, and the run goes on from its checkpoint")
    assert complaint_of(lambda: keep_rounds(log, record_of, 5)) == told
    assert log.read_bytes() == damaged


def test_of_the_end_only_whole_lines_count(log: Path) -> None:
    size = log.stat().st_size
    assert read_rounds_after(log, record_of, 0, size) == RECORDS
    assert read_rounds_after(log, record_of, 0, size - 1) == RECORDS[1:]
    assert read_rounds_after(log, record_of, RECORDS[0].round, size) == RECORDS[1:]
    # Not even where the end begins within a letter of several bytes.
    log.write_text('{"round": 1, "word": "ö"}\n{"round": 2, "word": "b"}\n', encoding="utf-8")
    place = log.read_bytes().index("ö".encode()) + 1
    assert read_rounds_after(log, record_of, 0, log.stat().st_size - place) == [Record(2, "b")]
