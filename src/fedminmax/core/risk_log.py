"""The risks and weights of a run's rounds as arrays, and their means over parts of the run."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Risks = NDArray[np.float64]
WORST_GROUP = "worst group's risk"
MEAN = "mean risk"


class LoggedRound(Protocol):
    """The common part of a line in any log; a risk is None or NaN if no site had the group."""

    @property
    def round(self) -> int:
        """The round's number, from 1."""
        ...

    @property
    def risks(self) -> Sequence[float | None]:
        """Training risk by group of the model that entered the round."""
        ...

    @property
    def weights(self) -> Sequence[float]:
        """The adversary's weights after the round; empty if there are none."""
        ...


class RiskLog:
    """Risks and weights as arrays, with the intervals over which they are compared.

    Groups that no site had during a whole interval cannot be judged and are skipped.
    """

    def __init__(
        self, rounds: Sequence[LoggedRound], rows: Sequence[int], included: Sequence[bool]
    ) -> None:
        risks: Risks = np.array([entry.risks for entry in rounds], dtype=np.float64)
        lines = ~np.isnan(risks[:, np.array(included, dtype=bool)]).all(axis=1)
        self.last = rounds[-1].round
        self.numbers = np.array([entry.round for entry in rounds])[lines]
        self.risks: Risks = risks[lines]
        self.weights: Risks = np.array([entry.weights for entry in rounds])[lines]
        ends = (1 / 8, 1 / 4, 1 / 2, 3 / 4, 1)
        means = np.array([self.mean_risks(*stretch) for stretch in pairwise(ends)])
        self.groups = ~np.isnan(means).any(axis=0)
        self.risks = self.risks[:, self.groups]
        self.rows: Risks = np.array(rows, dtype=np.float64)[self.groups]
        self.included = np.array(included, dtype=bool)[self.groups]
        # Lines that knew only groups that are skipped now have no risk to compare.
        lines = ~np.isnan(self.risks[:, self.included]).all(axis=1)
        self.numbers, self.risks = self.numbers[lines], self.risks[lines]
        self.weights = self.weights[lines]
        self.latest = _filled(self.risks)

    def between(self, after: float, until: float) -> NDArray[np.bool_]:
        """Return which lines lie between two fractions of the run."""
        inside: NDArray[np.bool_] = (self.numbers > after * self.last) & (
            self.numbers <= until * self.last
        )
        return inside

    def mean_risks(self, after: float, until: float) -> Risks:
        """Return each group's mean risk there; NaN for a group that no site had."""
        return mean_known(self.risks[self.between(after, until)])

    def risks_at(self, until: float) -> Risks:
        """Return each group's last known risk up to this fraction of the rounds."""
        line = int(np.searchsorted(self.numbers, until * self.last, side="right")) - 1
        risks: Risks = self.latest[max(0, line)]
        return risks

    def value(self, risks: Risks, measure: str) -> float:
        """Return the measured risk, computed from risks by group."""
        known = ~np.isnan(risks)
        if measure == WORST_GROUP:
            return float(risks[known & self.included].max())
        return float(risks[known] @ self.rows[known] / self.rows[known].sum())


def mean_known(risks: Risks) -> Risks:
    """Return the mean of each column over its known entries; NaN where there are none."""
    known = ~np.isnan(risks)
    counts = known.sum(axis=0)
    sums = np.where(known, risks, 0.0).sum(axis=0)
    return np.where(counts > 0, sums / np.maximum(counts, 1), math.nan)


def _filled(risks: Risks) -> Risks:
    """Fill unknown entries with the last known value above them."""
    known = np.where(np.isnan(risks), 0, np.arange(len(risks))[:, None])
    filled: Risks = np.take_along_axis(risks, np.maximum.accumulate(known, axis=0), axis=0)
    return filled
