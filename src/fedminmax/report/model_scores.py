"""What a saved model scores on each test row, ready to be measured by group."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fedminmax.core.examples import Examples
from fedminmax.core.score_sums import ScoreSums, sum_scores
from fedminmax.data.row_scores import RowScore
from fedminmax.data.tables.score_rows import score_predictions
from fedminmax.report.saved_model import SavedModel

# What the metrics call the risk that training is about.
RISKS = ("brier_risk", "squared_error")
# Whose change against a baseline is measured row by row; each row counts in them.
PAIRED = (*RISKS, "accuracy", "absolute_error")


@dataclass(frozen=True, eq=False)
class ScoredRows:
    """Metrics by name, with what each row adds to them, and each row's group."""

    scores: dict[str, RowScore]
    group: NDArray[np.int64]


def score_rows(measured: Sequence[tuple[SavedModel, Examples]]) -> ScoredRows:
    """Score all rows, each by the model beside it; squared errors are in the target's own unit."""
    scores = np.concatenate([saved.scores(part.x) for saved, part in measured])
    target = torch.cat([part.y for _, part in measured])
    group = np.concatenate([part.group.numpy() for _, part in measured])
    return ScoredRows(score_predictions(scores, target, measured[0][0].encoding), group)


def paired_sums(after: ScoredRows, before: ScoredRows, groups: int) -> dict[str, ScoreSums]:
    """Add up, over each group, what two models score on the same rows, by metric."""
    group = torch.from_numpy(after.group)
    return {
        name: sum_scores(_side_by_side(after.scores[name], before.scores[name]), group, groups)
        for name in after.scores
        if name in PAIRED
    }


def _side_by_side(after: RowScore, before: RowScore) -> torch.Tensor:
    return torch.from_numpy(np.stack([after.numerators, before.numerators], axis=1))
