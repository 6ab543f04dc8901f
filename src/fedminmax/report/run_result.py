"""What a finished run leaves: test scores by group for each iterate, and what they cost."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import fmean

import torch
from torch import Tensor

from fedminmax.core.convergence import Convergence
from fedminmax.core.errors import InputError
from fedminmax.core.files import write_json
from fedminmax.core.iterates import Iterate


@dataclass(frozen=True)
class GroupScores:
    """One model's test scores by group; empty where one was not measured.

    With two classes, ``positive_rates`` are the shares of rows that get the answer 1, and
    ``true_positive_rates`` those among rows with label 1.
    """

    risks: tuple[float, ...]
    accuracies: tuple[float, ...] = ()
    positive_rates: tuple[float, ...] = ()
    true_positive_rates: tuple[float, ...] = ()

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

    @property
    def gap(self) -> float:
        """The highest minus the lowest risk of a group."""
        return self.worst - self.best


def mix_scores(scores: Sequence[GroupScores], shares: Tensor) -> GroupScores:
    """Score a mixture: in group a, model m answers for the part ``shares[m, a]`` of the rows.

    >>> mix_scores([GroupScores((0.0, 1.0)), GroupScores((1.0, 0.0))], torch.full((2, 2), 0.5))
    GroupScores(risks=(0.5, 0.5), accuracies=(), positive_rates=(), true_positive_rates=())
    """
    return GroupScores(
        *(
            _weighted([getattr(one, field.name) for one in scores], shares)
            for field in fields(GroupScores)
        )
    )


def _weighted(values: list[tuple[float, ...]], shares: Tensor) -> tuple[float, ...]:
    if not values[0]:
        return ()
    table = torch.tensor(values, dtype=torch.float64)
    return tuple((table * shares.to(torch.float64)).sum(dim=0).tolist())


@dataclass(frozen=True)
class RunResult:
    """What one finished run leaves.

    ``chosen`` are the scores of the model or mixture that the method chooses itself, if it does;
    ``personal`` those of models that holders keep to themselves, if they do. ``gap_left`` is the
    share of the worst training risk that was left to gain, if the method knows it.
    """

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
    chosen: GroupScores | None = None
    personal: GroupScores | None = None
    convergence: Convergence | None = None
    gap_left: float | None = None

    @property
    def shown_scores(self) -> GroupScores:
        """The scores of what the method's paper returns."""
        return self.chosen or self.scores[self.shown]


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
        chosen, personal = content.pop("chosen", None), content.pop("personal", None)
        convergence = content.pop("convergence", None)
        return RunResult(
            shown=Iterate(content.pop("shown")),
            groups=tuple(content.pop("groups")),
            scores=scores_from_json(content.pop("scores")),
            chosen=_from_json(chosen) if chosen else None,
            personal=_from_json(personal) if personal else None,
            convergence=Convergence(**convergence) if convergence else None,
            **content,
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{path} is damaged; remove it to have that run finished again") from error


def all_converged(results: Sequence[RunResult]) -> bool | None:
    """Tell whether all of these runs converged; None if that is not known of some."""
    found = {None if own.convergence is None else own.convergence.converged for own in results}
    return False if False in found else None if None in found else True


def read_results(folder: Path) -> list[RunResult]:
    """Read all finished runs of a study's folder, also those of earlier and narrower calls."""
    found = [read_result(path.parent) for path in sorted((folder / "runs").glob("*/result.json"))]
    return [result for result in found if result is not None]


def scores_as_json(scores: dict[Iterate, GroupScores]) -> dict[str, dict[str, object]]:
    """Return the scores of some iterates as plain data."""
    return {which.value: asdict(one) for which, one in scores.items()}


def scores_from_json(content: dict[str, dict[str, list[float]]]) -> dict[Iterate, GroupScores]:
    """Read back what ``scores_as_json`` made."""
    return {Iterate(which): _from_json(one) for which, one in content.items()}


def _from_json(content: dict[str, list[float]]) -> GroupScores:
    return GroupScores(**{name: tuple(values) for name, values in content.items()})
