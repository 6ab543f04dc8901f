"""Validation rows: what is summed over them, and which round's model they choose.

Every holder sets rows aside and tells, with its reply, the losses of the model that was broadcast
on them: sums by group. The answer is the model whose worst group does best there. Four rules:

- The losses of round t are those of theta^(t-1), the model that entered the round. The model that
  a run ends with is measured by one more question, so that it competes, too.
- A group of fewer than ``MIN_VALIDATION_ROWS`` rows would rule the maximum by luck: the standard
  error of its risk is a fifth of a row's deviation and more. Such groups count as one, together, if
  they have that many rows in all; if no group has as many, all of them are that one. Groups that
  are too small for the adversary to choose have no say here either.
- A later model must beat the best one by more than ``TIE`` of the standard error of its worst risk;
  otherwise they are tied and the earlier one stays, which had less time to overfit. If the best
  risk is known up to a standard error s, giving away TIE s at the most raises the root mean square
  of the error from s to no more than sqrt(1 + TIE^2) s, half a percent for a tenth. A wider rule,
  such as the one standard error of Breiman et al. (Classification and Regression Trees, 1984),
  would give away much more than the noise between two rounds: their losses are on the same rows,
  so that most of it cancels in the difference.
- A round in which nobody told of a group that counts, or told a loss that is not finite, is no
  candidate. Without any candidate the answer is the last model.

The risk of the chosen model is the lowest of many, and so a little too good: that of test rows is
the honest one.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedminmax.core.errors import InputError
from fedminmax.core.text import in_words, is_finite

MIN_VALIDATION_ROWS = 30
TIE = 0.1
# Beyond it, less is left to train on than to choose by, and small groups could lose all rows.
MAX_SHARE = 0.5
DEFAULT_SHARE_FOR_NETWORKS = 0.1
# The number of all groups that are too small to count alone.
SMALL_GROUPS = -1


@dataclass(frozen=True, eq=False)
class LossSums:
    """Losses, their squares and rows by group; all empty where there are no validation rows."""

    loss: Tensor
    squares: Tensor
    count: Tensor

    def __add__(self, other: "LossSums") -> "LossSums":
        if not len(self.count) or not len(other.count):
            return self if len(self.count) else other
        return LossSums(
            self.loss + other.loss, self.squares + other.squares, self.count + other.count
        )

    @property
    def risks(self) -> Tensor:
        """Mean loss of each group; NaN for a group without rows."""
        return self.loss / self.count


NO_LOSSES = LossSums(
    torch.zeros(0, dtype=torch.float64),
    torch.zeros(0, dtype=torch.float64),
    torch.zeros(0, dtype=torch.int64),
)


@dataclass(frozen=True)
class ValidationRisk:
    """The worst group's validation risk of the model after a round, and its standard error.

    ``round`` is 0 for the start and -1 where nothing was measured; ``group`` is the worst group's
    number, or ``SMALL_GROUPS``.
    """

    round: int
    risk: float
    standard_error: float
    group: int

    @property
    def is_measured(self) -> bool:
        """Whether there is such a risk."""
        return self.round >= 0


NOT_MEASURED = ValidationRisk(-1, math.inf, 0.0, SMALL_GROUPS)


@dataclass(frozen=True, eq=False)
class BestModel:
    """The model that the validation rows chose so far, its risk, and that of the latest model.

    ``model`` has one line, or none before anything was measured.
    """

    model: Tensor
    chosen: ValidationRisk
    latest: ValidationRisk

    def consider(self, parameters: Tensor, measured: ValidationRisk) -> "BestModel":
        """Take the model of a later round if it is better by more than a tie."""
        if not measured.is_measured:
            return self
        bar = self.chosen.risk - TIE * self.chosen.standard_error
        if self.chosen.is_measured and not measured.risk < bar:
            return BestModel(self.model, self.chosen, measured)
        return BestModel(parameters.unsqueeze(0), measured, measured)


def nothing_chosen(initial: Tensor) -> BestModel:
    """Before the first round."""
    return BestModel(initial.new_zeros(0, len(initial)), NOT_MEASURED, NOT_MEASURED)


def worst_risk(sums: LossSums, rows: Tensor, after_round: int) -> ValidationRisk:
    """Return the highest risk among the groups that count.

    Args:
        sums: the losses that were told.
        rows: validation rows of each group over all holders, which decide who counts alone.
        after_round: the round after which the model stood.
    """
    alone, small = counted_groups(rows)
    if not len(sums.count):
        return NOT_MEASURED
    loss, squares, count = (
        torch.cat([values[alone], values[small].sum().unsqueeze(0)]) if small else values[alone]
        for values in (sums.loss, sums.squares, sums.count)
    )
    if not len(count) or not bool((count > 0).all()) or not bool(torch.isfinite(squares).all()):
        return NOT_MEASURED
    risks = loss / count
    worst = int(risks.argmax())
    return ValidationRisk(
        after_round,
        float(risks[worst]),
        standard_error(float(loss[worst]), float(squares[worst]), int(count[worst])),
        alone[worst] if worst < len(alone) else SMALL_GROUPS,
    )


def counted_groups(rows: Tensor) -> tuple[list[int], list[int]]:
    """Return the groups that count alone, and those that count as one; both without empty ones.

    >>> counted_groups(torch.tensor([100, 20, 15, 0])), counted_groups(torch.tensor([100, 20]))
    (([0], [1, 2]), ([0], []))
    >>> counted_groups(torch.tensor([3, 2]))
    ([], [0, 1])
    """
    numbers = rows.tolist()
    alone = [group for group, count in enumerate(numbers) if count >= MIN_VALIDATION_ROWS]
    small = [group for group, count in enumerate(numbers) if 0 < count < MIN_VALIDATION_ROWS]
    enough = sum(numbers[group] for group in small) >= MIN_VALIDATION_ROWS or not alone
    return alone, small if enough else []


def standard_error(total: float, squares: float, rows: int) -> float:
    """Return that of a mean, from sums over independent rows; 0 where it cannot be known.

    >>> round(standard_error(3.0, 5.0, 3), 9)  # of 0, 1 and 2
    0.577350269
    """
    if rows < 2:
        return 0.0
    variance = max(squares - total * total / rows, 0.0) / (rows - 1)
    return math.sqrt(variance / rows)


def sum_losses(losses: Tensor, group: Tensor, groups: int) -> LossSums:
    """Add up the losses of some rows by group, in float64."""
    own = losses.to(torch.float64)
    return LossSums(
        torch.bincount(group, weights=own, minlength=groups).cpu(),
        torch.bincount(group, weights=own.square(), minlength=groups).cpu(),
        torch.bincount(group, minlength=groups).cpu(),
    )


def checked_share(validation: float) -> float:
    """Refuse a share of rows that cannot be set aside."""
    if not (is_finite(validation) and 0.0 <= validation <= MAX_SHARE):
        raise InputError(
            f"validation = {in_words(validation)}; give the share of rows to choose the round by, "
            f"from 0 to {MAX_SHARE:g}: more would leave small groups without training rows"
        )
    return float(validation)
