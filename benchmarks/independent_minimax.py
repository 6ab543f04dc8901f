"""The minimax logistic model by another method: L-BFGS on a soft maximum, sharpened step by step.

Nothing here uses the package: numpy and scipy, one vector of slopes, float64. The soft
maximum (1/t) log sum_a exp(t r_a) lies above the highest of A risks by at most log(A) / t, and
with a ridge its own minimum is at most |gradient|^2 / (2 strength) below: an independent proof.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

Numbers = NDArray[np.float64]
Places = NDArray[np.int64]

SHARPNESS = (30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000)
MEAN = 0
"""The sharpness that means the mean over all rows instead of the worst group."""


@dataclass(frozen=True, eq=False)
class LogisticProblem:
    """Rows with a 1 in the last column, labels 0 and 1, groups, the loss by name and the ridge.

    A softmax of two outputs with the penalty ridge/2 |theta|^2 has slopes theta_1 - theta_0 and the
    penalty ridge/4 |slopes|^2, because a common shift of both outputs is never worth its penalty.
    """

    rows: Numbers
    labels: Places
    groups: Places
    loss: str
    ridge: float

    @classmethod
    def of(
        cls, x: Numbers, labels: Places, groups: Places, loss: str, ridge: float = 0.0
    ) -> "LogisticProblem":
        """Add the column of the intercept."""
        return cls(np.hstack([x, np.ones((len(x), 1))]), labels, groups, loss, ridge)

    def risks(self, slopes: Numbers) -> Numbers:
        """Return the groups' penalised risks."""
        return self._risks_and_pulls(slopes)[0]

    def soft_maximum(self, slopes: Numbers, sharpness: float) -> tuple[float, Numbers]:
        """Return the soft maximum of the risks and its gradient."""
        risks, pulls = self._risks_and_pulls(slopes)
        counts = np.bincount(self.groups)
        if sharpness == MEAN:
            weights = counts / len(self.rows)
            value = float(weights @ risks)
        else:
            raised = np.exp(sharpness * (risks - risks.max()))
            weights = raised / raised.sum()
            value = float(risks.max() + np.log(raised.sum()) / sharpness)
        slope = (pulls * (weights / counts)[self.groups]) @ self.rows
        return value, slope + 0.5 * self.ridge * slopes

    def _risks_and_pulls(self, slopes: Numbers) -> tuple[Numbers, Numbers]:
        outputs = self.rows @ slopes
        share = 1 / (1 + np.exp(-np.clip(outputs, -500, 500)))
        if self.loss == "brier":
            losses = 2 * (share - self.labels) ** 2
            pulls = 4 * (share - self.labels) * share * (1 - share)
        else:
            losses = np.logaddexp(0.0, outputs) - self.labels * outputs
            pulls = share - self.labels
        risks = np.bincount(self.groups, losses) / np.bincount(self.groups)
        return risks + 0.25 * self.ridge * float(slopes @ slopes), pulls


@dataclass(frozen=True, eq=False)
class Solved:
    """The lowest worst risk found, and a lower bound for all models (minus infinity: unknown)."""

    slopes: Numbers
    worst: float
    lower: float
    passes: int


def solve_mean(problem: LogisticProblem) -> Solved:
    """Return the plain model: the lowest mean over all rows."""
    *_, last = _sharpened(problem, (MEAN,))
    return last


def solve_minimax(problem: LogisticProblem) -> Solved:
    """Return the best of all sharpnesses."""
    solved = list(_sharpened(problem, SHARPNESS))
    best = min(solved, key=lambda one: one.worst)
    lower = max(one.lower for one in solved)
    return Solved(best.slopes, best.worst, lower, sum(one.passes for one in solved))


def _sharpened(problem: LogisticProblem, sharpnesses: tuple[int, ...]) -> Iterator[Solved]:
    slopes = np.zeros(problem.rows.shape[1])
    for sharpness in sharpnesses:
        found = minimize(
            problem.soft_maximum,
            slopes,
            args=(sharpness,),
            method="L-BFGS-B",
            jac=True,
            options={"maxiter": 2000, "maxfun": 4000, "ftol": 1e-14, "gtol": 1e-10, "maxcor": 50},
        )
        slopes = np.asarray(found.x)
        value, slope = problem.soft_maximum(slopes, sharpness)
        lower = -np.inf
        if problem.ridge and problem.loss != "brier" and sharpness != MEAN:
            above = np.log(problem.groups.max() + 1) / sharpness
            lower = value - above - float(slope @ slope) / problem.ridge
        worst = float(problem.risks(slopes).max())
        yield Solved(slopes, worst, float(lower), int(found.nfev))
