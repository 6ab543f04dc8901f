"""Additive models behind ``fit``: how rows are coded, where training starts, what pulls a score.

The class of models, which is how strongly each column is smoothed and which pairs of columns are
in, is chosen first, by the plain mean fit on all training rows (``training.additive_class``). The
method then starts from that fit.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedminmax.core.additive.effects import centred_effects
from fedminmax.core.additive.model import AdditiveModel
from fedminmax.core.examples import Examples
from fedminmax.core.linear_structure import LinearStructure
from fedminmax.estimators.coding import TableCodes
from fedminmax.estimators.settings import TrainingSettings, ridge_of
from fedminmax.estimators.training import Rows
from fedminmax.training.additive_class import choose_class


@dataclass(frozen=True, eq=False)
class AdditiveStart:
    """Coded rows with the model to start from, their coding, and training rows by code."""

    rows: Rows
    codes: TableCodes
    counts: torch.Tensor


def start_additive(
    settings: TrainingSettings, codes: TableCodes, rows: Rows, *, loss: str, outputs: int
) -> AdditiveStart:
    """Choose the class of models; ``rows`` have the features as they are.

    It is chosen by likelihood, also if the method trains with the Brier loss.
    """
    ridge, train = ridge_of(settings, loss), rows.places.train
    structure = LinearStructure(
        outputs,
        sum(block.own.size for block in codes.blocks),
        intercept=True,
        loss="cross_entropy" if outputs > 1 else "squared_error",
        ridge=ridge,
        coded=True,
    )
    x = torch.from_numpy(codes.apply(rows.x))
    pooled = Examples(
        x[torch.from_numpy(train)],
        torch.tensor(rows.y[train]),
        torch.zeros(int(train.sum()), dtype=torch.int64),
    )
    chosen = choose_class(
        [pooled],
        structure,
        codes.blocks,
        max_pairs=settings.pairs,
        smoothness=float(settings.smoothness),
    )
    codes = codes.with_pairs(chosen.pairs)
    model = AdditiveModel(outputs, chosen.blocks, records=int(train.sum()), ridge=ridge)
    model.load_effects(chosen.effects, chosen.intercepts)
    coded = replace(rows, x=codes.apply(rows.x), start=model)
    return AdditiveStart(coded, codes, chosen.counts)


@dataclass(frozen=True, eq=False)
class Explanation:
    """What pulls the scores of rows up and down: ``score`` is ``base`` plus all contributions.

    The score of two classes is the log-odds of the second, of more classes one for each (its output
    less the mean of all), of a quantity the prediction itself. ``base`` [scores] is the mean score
    of the training rows, ``contributions`` [rows, scores, effects] have the mean 0 over them.

    Args:
        effects: the names of columns and pairs of columns.
        scores: the names of the scores.
    """

    effects: tuple[str, ...]
    scores: tuple[str, ...]
    base: NDArray[np.float64]
    contributions: NDArray[np.float64]

    @property
    def score(self) -> NDArray[np.float64]:
        """The scores of all rows [rows, scores]."""
        total: NDArray[np.float64] = self.base + self.contributions.sum(axis=2)
        return total


def explanation_of(
    model: AdditiveModel,
    codes: TableCodes,
    counts: torch.Tensor,
    table: NDArray[Any],
    scores: tuple[str, ...],
) -> Explanation:
    """Explain the rows of a table."""
    centred = centred_effects(model.effects, model.bias, model.design.sizes, counts)
    contributions = centred.contributions(torch.from_numpy(codes.apply(table)))
    return Explanation(codes.block_names, scores, centred.base.numpy(), contributions.numpy())
