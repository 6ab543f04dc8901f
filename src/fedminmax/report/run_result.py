"""What a finished run leaves: test scores by group for each iterate, and what they cost."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from fedminmax.core.errors import InputError
from fedminmax.core.iterates import Iterate
from fedminmax.report.files import write_json


@dataclass(frozen=True)
class GroupScores:
    """One model's test risk and accuracy by group; no accuracies where none were measured."""

    risks: tuple[float, ...]
    accuracies: tuple[float, ...] = ()

    @property
    def worst(self) -> float:
        """The highest risk of a group."""
        return max(self.risks)

    @property
    def best(self) -> float:
        """The lowest risk of a group."""
        return min(self.risks)

    @property
    def mean(self) -> float:
        """The mean risk over groups."""
        return fmean(self.risks)


@dataclass(frozen=True)
class RunResult:
    """What one finished run leaves."""

    setting: str
    method: str
    fold: int
    groups: tuple[str, ...]
    rounds: int
    gradient_evaluations: int
    seconds: float
    shown: Iterate
    scores: dict[Iterate, GroupScores]
    step_factor: float | None

    @property
    def shown_scores(self) -> GroupScores:
        """The scores of the iterate that the method's paper returns."""
        return self.scores[self.shown]


def write_result(folder: Path, result: RunResult) -> None:
    """Write a finished run's result."""
    content = asdict(result) | {
        "shown": result.shown.value,
        "scores": scores_as_json(result.scores),
    }
    write_json(folder / "result.json", content)


def read_result(folder: Path) -> RunResult | None:
    """Read a finished run's result; None if the run is not finished."""
    path = folder / "result.json"
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text())
        return RunResult(
            shown=Iterate(content.pop("shown")),
            groups=tuple(content.pop("groups")),
            scores=scores_from_json(content.pop("scores")),
            **content,
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{path} is damaged; remove it to have that run finished again") from error


def read_results(folder: Path) -> list[RunResult]:
    """Read all finished runs of a study's folder, also those of earlier and narrower calls."""
    found = [read_result(path.parent) for path in sorted((folder / "runs").glob("*/result.json"))]
    return [result for result in found if result is not None]


def scores_as_json(scores: dict[Iterate, GroupScores]) -> dict[str, dict[str, object]]:
    """Return the scores of some iterates as plain data."""
    return {which.value: asdict(one) for which, one in scores.items()}


def scores_from_json(content: dict[str, dict[str, list[float]]]) -> dict[Iterate, GroupScores]:
    """Read back what ``scores_as_json`` made."""
    return {
        Iterate(which): GroupScores(tuple(one["risks"]), tuple(one["accuracies"]))
        for which, one in content.items()
    }
