"""What a saved model scores on each test row, ready to be measured by group."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fedminmax.core.examples import Examples
from fedminmax.data.row_scores import RowScore
from fedminmax.data.tables.score_rows import score_predictions
from fedminmax.report.bootstrap import RESAMPLES, resampled_sums
from fedminmax.report.paired_change import RiskSums
from fedminmax.report.saved_model import SavedModel

# What the metrics call the risk that training is about.
RISKS = ("brier_risk", "squared_error")


@dataclass(frozen=True, eq=False)
class ScoredRows:
    """Metrics by name, with what each row adds to them, and each row's group."""

    scores: dict[str, RowScore]
    group: NDArray[np.int64]

    @property
    def risk(self) -> RowScore:
        """The metric that training is about."""
        return next(score for name, score in self.scores.items() if name in RISKS)


def score_rows(measured: Sequence[tuple[SavedModel, Examples]]) -> ScoredRows:
    """Score all rows, each by the model beside it; squared errors are in the target's own unit."""
    scores = np.concatenate([saved.scores(part.x) for saved, part in measured])
    target = torch.cat([part.y for _, part in measured])
    group = np.concatenate([part.group.numpy() for _, part in measured])
    return ScoredRows(score_predictions(scores, target, measured[0][0].encoding), group)


def risk_sums(rows: ScoredRows, groups: int, seed: int) -> RiskSums:
    """Add up the risk's losses over each group, and over resamples that the seed alone decides."""
    risk = rows.risk
    columns = [risk.numerators, risk.denominators]
    observed = [np.bincount(rows.group, weights=own, minlength=groups) for own in columns]
    table = np.stack(columns, axis=1)
    drawn = resampled_sums(table, rows.group, groups, resamples=RESAMPLES, seed=seed)
    return RiskSums(np.stack(observed, axis=1), drawn)
