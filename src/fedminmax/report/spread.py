"""Mean and deviation over folds."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation over folds (0 for a single fold)."""

    mean: float
    deviation: float

    def __str__(self) -> str:
        return f"{self.mean:.3f}±{self.deviation:.3f}"


def spread(values: Sequence[float]) -> Spread:
    """Mean and sample deviation of some numbers."""
    return Spread(fmean(values), stdev(values) if len(values) > 1 else 0.0)


def shown_spread(values: Spread, folds: int) -> str:
    """Mean and deviation; one fold has no deviation to show."""
    return str(values) if folds > 1 else f"{values.mean:.3f}"
