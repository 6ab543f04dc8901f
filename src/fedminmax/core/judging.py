"""How a model is judged by losses on validation rows: by the objective that its method minimises.

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

from fedminmax.core.validation import (
    ALL_ROWS,
    MIN_SEEN_ROWS,
    MIN_VALIDATION_ROWS,
    NOT_MEASURED,
    ONE_SITE,
    LossSums,
    ValidationRisk,
    counted_groups,
    is_blind,
    standard_error,
    worst_risk,
)


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
