"""Validation rows: what is summed over them, and which round's model they choose.

Every site sets rows aside and includes in its reply the losses of the broadcast model on them, as
sums by group. The chosen model is the one that does best there by its method's own objective
(``core.judging``), such as the worst group's risk. Five rules:

- The losses of round t are those of theta^(t-1), the model that entered the round. The final model
  of a run is measured with one extra request, so that it is a candidate, too.
- A group with fewer than ``MIN_VALIDATION_ROWS`` rows would decide the maximum by chance: with
  cross-entropy, one or two confident errors among its rows, which get worse while all else gets
  better. Such groups are pooled if they have that many rows in total; if no group has as many, all
  of them are pooled. Groups that are too small for the adversary to choose do not count here
  either. (Measured on 28 splits of twelve tables with networks: pooling below 200 rows gave lower
  risks, for the worst group and on average, than below 30.)
- For a network that starts from a linear model, ``MIN_SEEN_ROWS`` in total suffice: a choice by
  chance costs no more than the way back to that model, whereas nothing else shows that a network
  learns the few training rows of a group by heart. With fewer, it stays that model (``is_blind``).
- A later model must beat the best one by more than ``TIE`` of the standard error of its worst risk;
  otherwise they are tied and the earlier one is kept, which had less time to overfit. If the best
  risk is known up to a standard error s, losing at most TIE s raises the root mean square of the
  error from s to at most sqrt(1 + TIE^2) s, half a percent for a tenth. A wider rule, such as the
  one standard error of Breiman et al. (Classification and Regression Trees, 1984), would lose much
  more than the noise between two rounds: their losses are on the same rows, so most of it cancels
  in the difference.
- A round is not a candidate if the losses of a group that counts are missing or not finite, or if
  it prepares a start (``methods.method.PreparingState``). Without any candidate the last model is
  returned.

The risk of the chosen model is the lowest of many, and so slightly optimistic; use test rows for an
unbiased estimate.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedminmax.core.errors import InputError
from fedminmax.core.text import format_value, is_finite

MIN_VALIDATION_ROWS, MIN_SEEN_ROWS = 200, 50
TIE = 0.1
# Beyond this, fewer rows are left to train than to validate, and small groups could lose all.
MAX_SHARE = 0.5
DEFAULT_SHARE_FOR_NETWORKS = 0.1
# In place of a group: the pool of all groups that are too small to count alone, all rows, a site.
SMALL_GROUPS, ALL_ROWS, ONE_SITE = -1, -2, -3
NO_SITES = torch.zeros(0, 3, dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class LossSums:
    """Losses, their squares and rows by group; all empty where there are no validation rows.

    ``by_site`` [K, 3] are the same three of each site, where the server sees them.
    """

    loss: Tensor
    squares: Tensor
    count: Tensor
    by_site: Tensor = NO_SITES

    def __add__(self, other: "LossSums") -> "LossSums":
        if not len(self.count) or not len(other.count):
            return self if len(self.count) else other
        return LossSums(
            self.loss + other.loss,
            self.squares + other.squares,
            self.count + other.count,
            self.by_site + other.by_site,
        )

    def of_one_site(self, number: int, sites: int) -> "LossSums":
        """Return the same sums, which are this site's alone."""
        by_site = torch.zeros(sites, 3, dtype=torch.float64)
        by_site[number] = self.as_columns.sum(dim=0)
        return replace(self, by_site=by_site)

    def above(self, levels: Tensor) -> "LossSums":
        """Return the sums of how far losses are above a level by group."""
        squares = self.squares - 2.0 * levels * self.loss + self.count * levels.square()
        return replace(self, loss=self.loss - levels * self.count, squares=squares)

    @property
    def as_columns(self) -> Tensor:
        """Losses, squares and rows as columns."""
        return torch.stack([self.loss, self.squares, self.count.double()], dim=1)

    @property
    def of_sites(self) -> "LossSums":
        """The sums with sites in place of groups."""
        loss, squares, count = self.by_site.T
        return LossSums(loss, squares, count.long())

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
    """The validation risk that judges the model after a round, and its standard error.

    ``round`` is 0 for the start and -1 where nothing was measured; ``group`` is the worst group's
    number, or one of ``SMALL_GROUPS``, ``ALL_ROWS`` and ``ONE_SITE``.
    """

    round: int
    risk: float
    standard_error: float
    group: int

    @property
    def is_measured(self) -> bool:
        """Whether there is a measurement."""
        return self.round >= 0


NOT_MEASURED = ValidationRisk(-1, math.inf, 0.0, SMALL_GROUPS)


@dataclass(frozen=True, eq=False)
class BestModel:
    """The model chosen by the validation rows so far, its risk, and the latest model's risk.

    ``model`` has one row, or none before the first measurement.
    """

    model: Tensor
    chosen: ValidationRisk
    latest: ValidationRisk

    def consider(
        self, parameters: Tensor, measured: ValidationRisk, *, stays: bool = False
    ) -> "BestModel":
        """Take the model of a later round if it is better by more than a tie, unless one stays."""
        if not measured.is_measured:
            return self
        bar = self.chosen.risk - TIE * self.chosen.standard_error
        if self.chosen.is_measured and (stays or not measured.risk < bar):
            return BestModel(self.model, self.chosen, measured)
        return BestModel(parameters.unsqueeze(0), measured, measured)


def no_best_model(initial: Tensor) -> BestModel:
    """Before the first round."""
    return BestModel(initial.new_zeros(0, len(initial)), NOT_MEASURED, NOT_MEASURED)


def worst_risk(
    sums: LossSums, rows: Tensor, after_round: int, least_pooled: int = MIN_VALIDATION_ROWS
) -> ValidationRisk:
    """Return the highest risk among the groups that count.

    Args:
        sums: the reported losses.
        rows: validation rows of each group over all sites, which decide which groups count alone.
        after_round: the round that produced the model.
        least_pooled: how many rows small groups need together.
    """
    alone, small = counted_groups(rows, least_pooled)
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


def counted_groups(
    rows: Tensor, least_pooled: int = MIN_VALIDATION_ROWS
) -> tuple[list[int], list[int]]:
    """Return the groups that count alone, and those that are pooled; both without empty ones.

    >>> counted_groups(torch.tensor([600, 120, 90, 0])), counted_groups(torch.tensor([600, 90]))
    (([0], [1, 2]), ([0], []))
    >>> counted_groups(torch.tensor([3, 2]))
    ([], [0, 1])
    """
    numbers = rows.tolist()
    alone = [group for group, count in enumerate(numbers) if count >= MIN_VALIDATION_ROWS]
    small = [group for group, count in enumerate(numbers) if 0 < count < MIN_VALIDATION_ROWS]
    enough = sum(numbers[group] for group in small) >= least_pooled or not alone
    return alone, small if enough else []


def is_blind(rows: Tensor) -> bool:
    """Return whether groups beside others that count have hardly any rows.

    >>> is_blind(torch.tensor([600, 40])), is_blind(torch.tensor([600, 90, 0]))
    (True, False)
    """
    alone, small = counted_groups(rows, MIN_SEEN_ROWS)
    return len(alone) + len(small) < int((rows > 0).sum())


def standard_error(total: float, squares: float, rows: int) -> float:
    """Return the standard error of a mean from sums over independent rows; 0 if unknown.

    >>> round(standard_error(3.0, 5.0, 3), 9)  # of 0, 1 and 2
    0.577350269
    """
    if rows < 2:
        return 0.0
    variance = max(squares - total * total / rows, 0.0) / (rows - 1)
    return math.sqrt(variance / rows)


def sum_losses(losses: Tensor, group: Tensor, groups: int) -> LossSums:
    """Sum the losses of some rows by group, in float64.

    >>> sum_losses(torch.zeros(0), torch.zeros(0, dtype=torch.int64), 2).loss.dtype
    torch.float64
    """
    own = losses.to(torch.float64)
    # Of no rows bincount makes whole numbers, whatever the weights are.
    return LossSums(
        torch.bincount(group, weights=own, minlength=groups).to("cpu", torch.float64),
        torch.bincount(group, weights=own.square(), minlength=groups).to("cpu", torch.float64),
        torch.bincount(group, minlength=groups).cpu(),
    )


def checked_share(validation: float) -> float:
    """Refuse a share of rows that cannot be set aside."""
    if not (is_finite(validation) and 0.0 <= validation <= MAX_SHARE):
        raise InputError(
            f"validation = {format_value(validation)}; give the share of validation rows, from 0 "
            f"to {MAX_SHARE:g}: more would leave small groups without training rows"
        )
    return float(validation)
