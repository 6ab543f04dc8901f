"""A small table with two groups that want different models, and its exact minimax by scipy."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import NonlinearConstraint, minimize

Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TwoGroups:
    """Features of different sizes, a quantity, its sign as label, and a rare second group."""

    x: Vector
    quantity: Vector
    group: NDArray[np.int64]

    @property
    def label(self) -> NDArray[np.int64]:
        """Tell which quantities are positive."""
        return (self.quantity > 0).astype(np.int64)

    @property
    def standardised(self) -> Vector:
        """Return the features with mean 0 and deviation 1, and a column of ones."""
        scaled = (self.x - self.x.mean(axis=0)) / self.x.std(axis=0)
        return np.column_stack([scaled, np.ones(len(self.x))])


def two_groups(seed: int = 0, rows: int = 400, features: int = 3) -> TwoGroups:
    """Draw a problem in which no model is best for both groups."""
    generator = np.random.default_rng(seed)
    group = (generator.random(rows) < 0.2).astype(np.int64)
    x = generator.normal(size=(rows, features)) * np.exp(generator.normal(size=features)) + 5.0
    directions = generator.normal(size=(2, features))
    noise = generator.normal(size=rows) * (1 + group)
    quantity = ((x - 5.0) / x.std(axis=0) * directions[group]).sum(axis=1) + noise
    return TwoGroups(x, quantity, group)


def group_risks(problem: TwoGroups, weights: Vector, loss: str) -> Vector:
    """Return both groups' mean losses of a linear model on standardised features."""
    output = problem.standardised @ weights
    if loss == "cross_entropy":
        losses = np.logaddexp(0.0, output) - problem.label * output
    elif loss == "brier":
        losses = 2.0 * (1.0 / (1.0 + np.exp(-output)) - problem.label) ** 2
    else:
        losses = (output - problem.quantity) ** 2
    return np.array([losses[problem.group == number].mean() for number in (0, 1)])


def minimax_value(problem: TwoGroups, loss: str) -> float:
    """Minimise a bound t on both groups' risks, by sequential quadratic programming."""
    start = [0.0] * problem.standardised.shape[1] + [10.0]
    below = NonlinearConstraint(
        lambda point: point[-1] - group_risks(problem, point[:-1], loss), 0.0, np.inf
    )
    found = minimize(_bound, start, method="SLSQP", constraints=below, tol=1e-12)
    assert found.success
    return float(found.fun)


def _bound(point: Vector) -> float:
    return float(point[-1])
