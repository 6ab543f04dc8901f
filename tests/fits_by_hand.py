"""Weighted fits as plain numpy loops over the pooled rows, for the papers that ask for them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.oracles import Labels, brier_gradient
from tests.problems import Problem, Vector


@dataclass(frozen=True)
class Pooled:
    """All rows of a problem in one place, with the groups' shares rho."""

    problem: Problem

    @property
    def rho(self) -> Vector:
        """The groups' shares."""
        _, _, group = self._rows()
        shares: Vector = np.bincount(group, minlength=self.problem.groups) / len(group)
        return shares

    def risks(self, theta: Vector) -> Vector:
        """Mean Brier loss of each group."""
        x, y, group = self._rows()
        losses = self.problem.brier_losses(theta, x, y)
        return np.array([losses[group == a].mean() for a in range(self.problem.groups)])

    def fit(self, theta: Vector, mu: Vector, *, eta: float, steps: int) -> Vector:
        """Gradient descent on sum_a mu_a r_a."""
        x, y, group = self._rows()
        per_row = mu[group] / np.bincount(group)[group]
        for _ in range(steps):
            theta = theta - eta * brier_gradient(self.problem, theta, x, y, per_row)
        return theta

    def _rows(self) -> tuple[Vector, Labels, Labels]:
        each = self.problem.numpy_rows()
        return (
            np.concatenate([x for x, _, _ in each]),
            np.concatenate([y for _, y, _ in each]),
            np.concatenate([group for _, _, group in each]),
        )


Move = Callable[[Vector, Vector, int], Vector]
"""Maps the adversary's vector, the fitted model's risks and t = 1, 2, ... to the next vector."""


def fits_by_hand(
    pooled: Pooled,
    first: Vector,
    learner: Callable[[Vector], Vector],
    move: Move,
    *,
    fits: int,
    eta: float,
    steps: int,
    warm: bool = True,
) -> tuple[list[Vector], list[Vector]]:
    """Return the fitted models, and the adversary's vectors (the first, and one after each fit)."""
    models: list[Vector] = []
    vectors = [first]
    theta = pooled.problem.start
    for t in range(1, fits + 1):
        start = theta if warm else pooled.problem.start
        theta = pooled.fit(start, learner(vectors[-1]), eta=eta, steps=steps)
        models.append(theta)
        vectors.append(move(vectors[-1], pooled.risks(theta), t))
    return models, vectors
