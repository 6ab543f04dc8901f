"""A run's test scores along its way: JSON lines, one per round that was tested."""

import json
from dataclasses import dataclass
from pathlib import Path

from fedminmax.core.errors import InputError
from fedminmax.core.files import write_text
from fedminmax.core.iterates import Iterate
from fedminmax.report.run_result import GroupScores, scores_as_json, scores_from_json


@dataclass(frozen=True)
class ScoredRound:
    """The test scores of the three iterates after a round."""

    round: int
    scores: dict[Iterate, GroupScores]


class ScoredRounds:
    """The file of a run's scored rounds; it appears with the first of them.

    Lines after the restored round belong to work that will be done again, and are dropped.
    """

    def __init__(self, path: Path, restored_round: int) -> None:
        self._path = path
        if path.exists():
            kept = [point for point in read_scored_rounds(path) if point.round <= restored_round]
            write_text(path, "".join(_line(point) for point in kept))

    def add(self, number: int, scores: dict[Iterate, GroupScores]) -> None:
        """Append a round's scores to the file."""
        with self._path.open("a") as file:
            file.write(_line(ScoredRound(number, scores)))


def read_scored_rounds(path: Path) -> list[ScoredRound]:
    """Read the file; a last line that was cut off by a crash is not part of it."""
    if not path.exists():
        return []
    lines = path.read_text().splitlines(keepends=True)
    try:
        entries = [json.loads(line) for line in lines if line.endswith("\n")]
        return [ScoredRound(entry["round"], scores_from_json(entry["scores"])) for entry in entries]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path} is damaged; remove it, and the run goes on from its checkpoint"
        ) from error


def _line(point: ScoredRound) -> str:
    return json.dumps({"round": point.round, "scores": scores_as_json(point.scores)}) + "\n"
