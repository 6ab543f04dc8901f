"""A run's history file: what was done after the checkpoint is dropped, damage is told."""

import time
from pathlib import Path

import pytest

from fedminmax.core.json_log import JsonLog
from fedminmax.training.checkpoint import HistoryPoint, Stopwatch, read_history
from tests.complaints import complaint_of

LINES = [
    '{"round": 1, "seconds": 0.5, "risks": [0.4, 0.3], "weights": []}\n',
    '{"round": 2, "seconds": 0.9, "risks": [0.3, 0.2], "weights": []}\n',
]


def test_lines_after_the_restored_round_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text("".join(LINES))
    (kept,) = JsonLog(path, HistoryPoint).drop_after(1)
    assert read_history(path) == [kept] == [HistoryPoint(1, 0.5, (0.4, 0.3), ())]


def test_seconds_add_up_over_calls() -> None:
    assert Stopwatch(0.5, started=time.monotonic() - 20.0).seconds >= 20.5


def test_a_line_cut_off_by_a_crash_is_not_part_of_the_history(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(LINES[0] + LINES[1][:20])
    assert [point.round for point in read_history(path)] == [1]


@pytest.mark.parametrize("damage", ["\0\0\0\0\n", "[]\n", '{"round": 2}\n'])
def test_a_damaged_line_is_told(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(LINES[0] + damage)
    assert "history.jsonl is damaged" in complaint_of(lambda: read_history(path))
