"""Local full-batch steps in numpy, with every model on the way."""

import numpy as np

from tests.oracles import Labels, brier_gradient
from tests.problems import Problem, Vector


def models_on_the_way(
    problem: Problem,
    theta: Vector,
    x: Vector,
    y: Labels,
    row_weights: Vector,
    *,
    eta: float,
    steps: int,
) -> list[Vector]:
    """Return theta^{(0)}, ..., theta^{(steps)} of one site on its weighted mean loss."""
    models = [theta]
    for _ in range(steps):
        gradient = brier_gradient(problem, models[-1], x, y, row_weights) / len(y)
        models.append(models[-1] - eta * gradient)
    return models


def plain(y: Labels) -> Vector:
    """The same weight for all rows."""
    return np.ones(len(y))
