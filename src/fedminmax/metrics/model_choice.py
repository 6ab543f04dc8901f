"""Which of two kinds of model to train: the richer one only if it is clearly better.

Both are trained on the same rows, and compared by the risk of their worst groups on validation rows
(``core.validation`` says which groups count). The richer model is chosen if its worst risk is lower
by more than one standard error of the difference, which is the rule of Breiman et al.
(Classification and Regression Trees, 1984): of models that cannot be told apart, the simplest. If
both have the same worst group, that is the error of the mean of paired differences; otherwise the
two risks are means over different rows, and their variances add up.
"""

import math
from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from fedminmax.core.validation import (
    SMALL_GROUPS,
    ValidationRisk,
    counted_groups,
    standard_error,
    sum_losses,
    worst_risk,
)

# More than to choose a round by: one comparison, after which all rows are trained on.
DEFAULT_SHARE_FOR_CHOICE = 0.2


@dataclass(frozen=True)
class ComparedModels:
    """The worst groups' validation risks of both models, and the error of their difference."""

    plain: ValidationRisk
    richer: ValidationRisk
    _: KW_ONLY
    error: float

    @property
    def gain(self) -> float:
        """How much lower the richer model's worst risk is; 0 if nothing was measured."""
        both = self.plain.is_measured and self.richer.is_measured
        return self.plain.risk - self.richer.risk if both else 0.0

    @property
    def prefers_richer(self) -> bool:
        """Whether the gain is clear."""
        return self.gain > self.error


def compare_models(plain: Tensor, richer: Tensor, group: Tensor, rows: Tensor) -> ComparedModels:
    """Compare two models by the losses of the same validation rows.

    Args:
        plain: the plain model's loss of each row.
        richer: the richer model's.
        group: the group of each row.
        rows: validation rows of each group, 0 for groups that are too small to be trained for.
    """
    groups = len(rows)
    worst = [worst_risk(sum_losses(own, group, groups), rows, 0) for own in (plain, richer)]
    if worst[0].group != worst[1].group:
        error = math.hypot(worst[0].standard_error, worst[1].standard_error)
        return ComparedModels(*worst, error=error)
    _, pooled = counted_groups(rows)
    members = pooled if worst[0].group == SMALL_GROUPS else [worst[0].group]
    change = (plain - richer).double()[torch.isin(group, torch.tensor(members))]
    error = standard_error(float(change.sum()), float(change.square().sum()), len(change))
    return ComparedModels(*worst, error=error)
