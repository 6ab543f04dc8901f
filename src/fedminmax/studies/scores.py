"""Test scores of a study's runs by group: how they are measured, stored and summarised.

Classifiers are scored by Brier risk, accuracy and rates. A finished run stores the scores of each
iterate and its cost; a table shows their mean and deviation over folds.
"""

import copy
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, fields
from pathlib import Path
from statistics import fmean, stdev

import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor, nn

from fedminmax.core.convergence import Convergence
from fedminmax.core.errors import InputError
from fedminmax.core.examples import Examples
from fedminmax.core.files import write_json
from fedminmax.core.iterates import Iterate
from fedminmax.core.losses import brier_loss
from fedminmax.core.parity import LABELS
from fedminmax.core.validation import ValidationRisk
from fedminmax.runs.folder import RESULT_FILE

# Small enough for the activations of a convolutional network to stay in the cache.
ROWS_AT_ONCE = 100


@dataclass(frozen=True)
class GroupScores:
    """One model's test scores by group; those not measured are empty.

    With two classes, ``positive_rates`` are the shares of rows that are predicted 1, and
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
    def difference(self) -> float:
        """The highest minus the lowest risk of a group."""
        return self.worst - self.best


def mix_scores(scores: Sequence[GroupScores], shares: Tensor) -> GroupScores:
    """Score a mixture: in group a, model m predicts the share ``shares[m, a]`` of the rows.

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
    """The result of one finished run.

    ``chosen`` are the scores of the model or mixture that the method chooses itself by training
    risks, if it does; ``personal`` those of models that sites keep to themselves, if any.
    ``gap_left`` is the share of the training risk that was left to gain, if the method knows it.
    ``validation`` is the round that validation rows chose, if there were any.
    """

    setting: str
    method: str
    fold: int
    _: KW_ONLY
    groups: tuple[str, ...]
    rounds: int
    gradient_evaluations: int
    seconds: float
    shown: Iterate
    scores: dict[Iterate, GroupScores]
    step_factor: float | None
    convergence: Convergence
    chosen: GroupScores | None = None
    personal: GroupScores | None = None
    gap_left: float | None = None
    validation: ValidationRisk | None = None

    @property
    def shown_scores(self) -> GroupScores:
        """The scores of the answer: validation rows' choice, the method's own, or an iterate."""
        if self.chosen is None or self.shown is Iterate.BEST:
            return self.scores[self.shown]
        return self.chosen

    @property
    def chosen_round(self) -> int | None:
        """The round whose model is the answer, if validation rows chose it."""
        return self.validation.round if self.validation and self.shown is Iterate.BEST else None

    @property
    def shown_name(self) -> str:
        """The answer's name in tables."""
        if self.chosen is None or self.shown is Iterate.BEST:
            return self.shown.value.replace("_", " ")
        return "chosen"


RESULT = TypeAdapter(RunResult)


def write_result(folder: Path, result: RunResult) -> None:
    """Write a finished run's result."""
    write_json(folder / RESULT_FILE, RESULT.dump_python(result, mode="json"))


def read_result(folder: Path) -> RunResult | None:
    """Read a finished run's result; None if the run is not finished."""
    path = folder / RESULT_FILE
    if not path.exists():
        return None
    try:
        return RESULT.validate_json(path.read_bytes())
    except ValidationError as error:
        raise InputError(f"{path} is damaged; remove it to finish that run again") from error


def all_converged(results: Sequence[RunResult]) -> bool:
    """Whether all of these runs converged."""
    return all(own.convergence.converged for own in results)


def read_results(folder: Path) -> list[RunResult]:
    """Read all finished runs of a study's folder, including those of earlier calls."""
    found = [
        read_result(path.parent) for path in sorted((folder / "runs").glob(f"*/{RESULT_FILE}"))
    ]
    return [result for result in found if result is not None]


def score_by_group(model: nn.Module, examples: Examples, groups: int) -> GroupScores:
    """Return each group's mean Brier loss and share of correct labels; with two classes, rates."""
    device = next(model.parameters()).device
    # A copy: channels last is the fastest layout on a CPU, but must not change the caller's model.
    fast = copy.deepcopy(model)
    fast.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    with torch.no_grad():
        outputs = [
            fast(examples.x[start : start + ROWS_AT_ONCE].to(device)).cpu()
            for start in range(0, len(examples), ROWS_AT_ONCE)
        ]
    logits = torch.cat(outputs)
    losses = brier_loss(logits, examples.y).double()
    answers = logits.argmax(dim=1)
    everyone = torch.ones_like(examples.group, dtype=torch.bool)
    columns = [(losses, everyone), (answers == examples.y, everyone)]
    if logits.shape[1] == LABELS:
        columns += [(answers == 1, everyone), (answers == 1, examples.y == 1)]
    return GroupScores(*(_mean_by_group(*column, examples.group, groups) for column in columns))


def _mean_by_group(
    values: Tensor, counted: Tensor, group: Tensor, groups: int
) -> tuple[float, ...]:
    """Return each group's mean over the counted rows; NaN for a group without any."""
    own = group[counted]
    sums = torch.bincount(own, weights=values[counted].double(), minlength=groups)
    return tuple((sums / torch.bincount(own, minlength=groups)).tolist())


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation over folds; a single fold has none.

    >>> str(Spread(0.25, 0.031)), str(Spread(0.25, None))
    ('0.250±0.031', '0.250')
    """

    mean: float
    deviation: float | None

    def __str__(self) -> str:
        return f"{self.mean:.3f}" + ("" if self.deviation is None else f"±{self.deviation:.3f}")


def spread(values: Sequence[float]) -> Spread:
    """Return the mean and sample deviation of some numbers."""
    return Spread(fmean(values), stdev(values) if len(values) > 1 else None)
