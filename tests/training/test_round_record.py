"""A run's log of rounds: what was done after the checkpoint is dropped, damage is told."""

import json
import time
from pathlib import Path

import pytest

from fedminmax.core.json_log import JsonLog
from fedminmax.training.resume import Stopwatch
from fedminmax.training.round_record import RoundRecord, read_rounds
from tests.complaints import complaint_of
from tests.training.made_up_rounds import made_up_round

ROUNDS = [made_up_round(1), made_up_round(2)]
LINES = [json.dumps(record.as_json()) + "\n" for record in ROUNDS]


def test_lines_after_the_restored_round_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "rounds.jsonl"
    path.write_text("".join(LINES))
    (kept,) = JsonLog(path, RoundRecord).drop_after(1)
    assert read_rounds(path) == [kept] == ROUNDS[:1]


def test_seconds_add_up_over_calls() -> None:
    assert Stopwatch(0.5, started=time.monotonic() - 20.0).seconds >= 20.5


def test_a_line_cut_off_by_a_crash_is_not_part_of_the_log(tmp_path: Path) -> None:
    path = tmp_path / "rounds.jsonl"
    path.write_text(LINES[0] + LINES[1][:20])
    assert [record.round for record in read_rounds(path)] == [1]


@pytest.mark.parametrize("damage", ["\0\0\0\0\n", "[]\n", '{"round": 2}\n'])
def test_a_damaged_line_is_told(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "rounds.jsonl"
    path.write_text(LINES[0] + damage)
    assert "rounds.jsonl is damaged" in complaint_of(lambda: read_rounds(path))
