"""Two classes and groups of unequal base rates, and parity measured in numpy."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedminmax.core.parity import Parity
from tests.problems import Problem, Vector, to_numpy

Labels = NDArray[np.int64]


def unequal_problem(*, sites: int = 3, rows: int = 120, seed: int = 0) -> Problem:
    """Group 1 has fewer positive labels; features tell a score and the group."""
    rng = np.random.default_rng(seed)
    parts = []
    for _ in range(sites):
        group = rng.integers(2, size=rows)
        score = rng.normal(size=rows) - 1.0 * group
        y = (score + 0.8 * rng.normal(size=rows) > 0).astype(np.int64)
        x = np.stack([score, np.abs(score) * (1 - 2 * group), 1.0 * group], axis=1)
        parts.append((torch.from_numpy(x), torch.from_numpy(y), torch.from_numpy(group)))
    return Problem(parts, np.zeros(8), features=3, classes=2, groups=2)


def pooled_rows(problem: Problem) -> tuple[Vector, Labels, Labels]:
    """All rows in one place."""
    rows = problem.numpy_rows()
    return (
        np.concatenate([x for x, _, _ in rows]),
        np.concatenate([y for _, y, _ in rows]),
        np.concatenate([g for _, _, g in rows]),
    )


def scores(problem: Problem, theta: Vector, x: Vector) -> Vector:
    """p_1 of each row: with two classes, a sigmoid of the difference of the outputs."""
    cut = 2 * problem.features
    weight, bias = theta[:cut].reshape(2, problem.features), theta[cut:]
    p: Vector = 1.0 / (1.0 + np.exp(-(x @ (weight[1] - weight[0]) + bias[1] - bias[0])))
    return p


def answers(problem: Problem, theta: Vector, x: Vector) -> Vector:
    """1 where class 1 is the likelier one, else 0."""
    hard: Vector = (scores(problem, theta, x) > 0.5).astype(np.float64)
    return hard


def rates(parity: Parity, values: Vector, y: Labels, group: Labels, groups: int) -> Vector:
    """Mean of the values by group, over all rows or over those with label 1; NaN without rows."""
    counted = np.ones(len(y), dtype=bool) if parity is Parity.DEMOGRAPHIC else y == 1
    means = np.full(groups, np.nan)
    for a in range(groups):
        if (own := counted & (group == a)).any():
            means[a] = values[own].mean()
    return means


def hard_gap(parity: Parity, problem: Problem, parameters: Tensor) -> float:
    """Largest difference of the rates of positive answers over the pooled rows."""
    x, y, group = pooled_rows(problem)
    by_group = rates(parity, answers(problem, to_numpy(parameters), x), y, group, problem.groups)
    return float(by_group.max() - by_group.min())
