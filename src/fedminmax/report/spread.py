"""Mean and deviation over folds."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation over folds; a single fold has none.

    >>> str(Spread(0.25, 0.031)), str(Spread(0.25, None))
    ('0.250±0.031', '0.250')
    """

    mean: float
    deviation: float | None

    def __str__(self) -> str:
        return f"{self.mean:.3f}" + ("" if self.deviation is None else f"±{self.deviation:.3f}")


def spread(values: Sequence[float]) -> Spread:
    """Mean and sample deviation of some numbers."""
    return Spread(fmean(values), stdev(values) if len(values) > 1 else None)
