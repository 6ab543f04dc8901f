"""Logs of JSON lines: what a crash cut off does not count, damage is told in one line."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest

from fedminmax.core.json_log import JsonLog, read_lines
from tests.complaints import complaint_of


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
