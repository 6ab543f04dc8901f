"""What is measured of a model's answers to test records, the same for every model."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from experiments.table_models.tables import Problem

Numbers = NDArray[np.float64]
Positions = NDArray[np.int64]
# Test risks of smaller groups are chance.
LEAST_RECORDS = 30
TEST_SHARE, SEEDS = 0.3, 5
RESULTS = Path(__file__).with_name("risks.jsonl")


def split(problem: Problem, seed: int) -> tuple[Positions, Positions]:
    """Return which records are trained on, and which tested on."""
    order = np.random.default_rng(seed).permutation(len(problem.frame))
    train, test = np.split(order, [round((1 - TEST_SHARE) * len(order))])
    return train, test


@dataclass(frozen=True)
class Risks:
    """The Brier score (sum over classes), or the squared error in units of the target's variance.

    ``worst`` and ``by_group`` are of the groups with enough test records. Quantities have no
    AUROC.
    """

    mean: float
    worst: float
    by_group: dict[str, float]
    auroc: float | None

    def as_json(self) -> dict[str, Any]:
        """Return the numbers with five decimals."""
        return {name: _rounded(value) for name, value in asdict(self).items()}


def risks_of(problem: Problem, train: Positions, test: Positions, answers: Numbers) -> Risks:
    """Measure the answers: probabilities of class 1, or quantities."""
    y, group = problem.target[test], problem.frame["group"].to_numpy()[test]
    names, counts = np.unique(group, return_counts=True)
    parts = {
        str(name): group == name
        for name, count in zip(names, counts, strict=True)
        if count >= LEAST_RECORDS
    }
    if problem.classifies:
        errors, auroc = 2 * (answers - y) ** 2, float(roc_auc_score(y, answers))
    else:
        errors, auroc = (answers - y) ** 2 / problem.target[train].var(), None
    by_group = {name: float(errors[part].mean()) for name, part in parts.items()}
    return Risks(float(errors.mean()), max(by_group.values()), by_group, auroc)


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    return value if value is None else round(value, 5)
