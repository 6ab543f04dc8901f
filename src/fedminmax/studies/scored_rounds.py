"""A run's test scores along its way: JSON lines, one per round that was tested."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedminmax.core.iterates import Iterate
from fedminmax.core.json_lines import append_entry, keep_rounds, read_records
from fedminmax.report.run_result import GroupScores, scores_as_json, scores_from_json


@dataclass(frozen=True)
class ScoredRound:
    """The test scores of a run's iterates after a round."""

    round: int
    scores: dict[Iterate, GroupScores]


class ScoredRounds:
    """The file of a run's scored rounds; it appears with the first of them.

    Lines after the restored round belong to work that will be done again, and are dropped.
    """

    def __init__(self, path: Path, restored_round: int) -> None:
        self._path = path
        if path.exists():
            keep_rounds(path, _parsed, restored_round)

    def add(self, number: int, scores: dict[Iterate, GroupScores]) -> None:
        """Append a round's scores to the file."""
        append_entry(self._path, {"round": number, "scores": scores_as_json(scores)})


def read_scored_rounds(path: Path) -> list[ScoredRound]:
    """Read the file; a last line that was cut off by a crash is not part of it."""
    return read_records(path, _parsed)


def _parsed(entry: Any) -> ScoredRound:
    return ScoredRound(entry["round"], scores_from_json(entry["scores"]))
