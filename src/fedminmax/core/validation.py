"""Validation rows: what is summed over them, and which round's model they choose.

Every site sets rows aside and includes in its reply the losses of the broadcast model on them, as
sums by group. The chosen model is the one that does best there by its method's own objective
(``Judge``), such as the worst group's risk. Five rules:

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

How a model is judged by losses on validation rows: by the objective that its method minimises.

The players are groups, sites, or a single one with all rows. With their risks r_k and shares p_k
of the rows, the objective is the worst risk, its mixture with the mean risk (``keep_share``), the
tilted mean (1/t) log sum_k p_k exp(t r_k), or the power mean (sum_k p_k r_k^(q+1))^(1/(q+1)), which
orders models as the mean of powers does.

Players with few rows are pooled (see ``core.validation``), and so they are in every objective. A
server that does not see each site's losses judges by the mean over all rows in place of an
objective over sites.
"""

import math
from dataclasses import dataclass, replace
from enum import Enum

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


class Players(Enum):
    """Whose risks an objective is about."""

    GROUPS = "groups"
    SITES = "sites"
    ROWS = "rows"


@dataclass(frozen=True)
class Judge:
    """An objective over players; the worst risk unless it has a ``tilt`` or a ``power`` q.

    With ``keep_share`` k, the worst risk counts 1 - k, and the mean risk over all rows counts k.
    """

    players: Players
    tilt: float | None = None
    power: float | None = None
    keep_share: float = 0.0

    def measure(
        self,
        sums: LossSums,
        rows: Tensor,
        included: Tensor,
        after_round: int,
        *,
        has_start: bool = False,
    ) -> ValidationRisk:
        """Return the objective and its standard error, or that it was not measured.

        Args:
            sums: the reported losses.
            rows: validation rows of each group over all sites.
            included: which groups are large enough for training to count alone.
            after_round: the round that produced the model.
            has_start: whether the first model that is judged is a linear one.
        """
        if not len(sums.count):
            return NOT_MEASURED
        if self.players is Players.GROUPS:
            sums, rows = sums, torch.where(included, rows, 0)
        elif self.players is Players.SITES and len(sums.by_site):
            # Without all rows, the worst site may be missing.
            if int(sums.count.sum()) != int(rows.sum()):
                return NOT_MEASURED
            sums = sums.of_sites
            rows = sums.count
        else:
            missing = bool((sums.count[rows > 0] == 0).any())
            return NOT_MEASURED if missing else _mean(sums, after_round)
        if self.tilt is None and self.power is None:
            least = MIN_SEEN_ROWS if has_start else MIN_VALIDATION_ROWS
            found = worst_risk(sums, rows, after_round, least)
            if self.players is Players.SITES and found.is_measured:
                found = replace(found, group=ONE_SITE)
            return self._with_mean(found, sums)
        return self._averaged(sums, rows, after_round)

    def is_blind(self, rows: Tensor, included: Tensor) -> bool:
        """Return whether some players have too few validation rows to be judged."""
        return self.players is Players.GROUPS and is_blind(torch.where(included, rows, 0))

    def _with_mean(self, worst: ValidationRisk, sums: LossSums) -> ValidationRisk:
        """Return the mixture of the worst risk and the mean risk, as in ``simplex.FixedShares``."""
        mean = _mean(sums, worst.round)
        if not self.keep_share or not worst.is_measured or not mean.is_measured:
            return worst
        kept, rest = self.keep_share, 1.0 - self.keep_share
        return replace(
            worst,
            risk=rest * worst.risk + kept * mean.risk,
            # At most this, by Cauchy and Schwarz: both are means over some of the same rows.
            standard_error=rest * worst.standard_error + kept * mean.standard_error,
        )

    def _averaged(self, sums: LossSums, rows: Tensor, after_round: int) -> ValidationRisk:
        """Return a tilted or power mean; its error by the derivatives in the players' risks."""
        alone, small = counted_groups(rows)
        parts = [[player] for player in alone] + ([small] if small else [])
        counts = [int(sums.count[part].sum()) for part in parts]
        if not parts or not all(counts) or not bool(torch.isfinite(sums.squares).all()):
            return NOT_MEASURED
        losses = [float(sums.loss[part].sum()) for part in parts]
        squares = [float(sums.squares[part].sum()) for part in parts]
        each = list(zip(losses, squares, counts, strict=True))
        errors = torch.tensor([standard_error(*own) for own in each], dtype=torch.float64)
        counted = torch.tensor(counts, dtype=torch.float64)
        risks = torch.tensor(losses, dtype=torch.float64) / counted
        shares = counted / counted.sum()
        value, slopes = self._mean_of(risks, shares)
        error = float((slopes * errors).square().sum().sqrt())
        return ValidationRisk(after_round, value, error, ALL_ROWS)

    def _mean_of(self, risks: Tensor, shares: Tensor) -> tuple[float, Tensor]:
        """Return the mean and its derivatives."""
        if self.tilt:
            scores = shares.log() + self.tilt * risks
            return float(torch.logsumexp(scores, 0)) / self.tilt, torch.softmax(scores, 0)
        order = 1.0 + (self.power or 0.0)
        total = float((shares * risks**order).sum())
        if total == 0.0:
            return 0.0, shares
        return total ** (1.0 / order), shares * risks ** (order - 1.0) * total ** (1.0 / order - 1)


WORST_GROUP = Judge(Players.GROUPS)
WORST_SITE = Judge(Players.SITES)
MEAN = Judge(Players.ROWS)


def _mean(sums: LossSums, after_round: int) -> ValidationRisk:
    loss, squares, count = (float(own.sum()) for own in (sums.loss, sums.squares, sums.count))
    if count == 0 or not math.isfinite(squares):
        return NOT_MEASURED
    error = standard_error(loss, squares, int(count))
    return ValidationRisk(after_round, loss / count, error, ALL_ROWS)
