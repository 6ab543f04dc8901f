"""How a group's risk changed from the baseline to the method, and how sure that is.

The interval of a difference comes from the intervals of its two ends by squaring and adding
(Newcombe, Statistics in Medicine 1998; Zou and Donner, Statistics in Medicine 2008), as if the
ends were independent. Both models are measured on the same rows, which mostly makes their errors
alike, so that the true interval is narrower: what is called sure here is sure.
"""

import math
from dataclasses import dataclass

from fedminmax.report.html_read_run import Run
from fedminmax.report.html_run_schema import Interval


@dataclass(frozen=True)
class Change:
    """A risk before and after; ``value`` is after minus before, above 0 where it rose."""

    name: str
    rows: int
    before: float
    after: float
    value: float
    low: float
    high: float

    @property
    def is_sure(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low > 0 or self.high < 0


def change_between(name: str, rows: int, before: Interval, after: Interval) -> Change | None:
    """Return the change; None where one of the ends has no value or no interval.

    >>> from fedminmax.report.html_run_schema import Interval
    >>> before, after = (Interval(value=v, low=v - r, high=v + r) for v, r in ((9, 3), (4, 4)))
    >>> change = change_between("a", 10, before, after)
    >>> change.value, change.low, change.high, change.is_sure
    (-5.0, -10.0, 0.0, False)
    """
    if (
        before.value is None
        or before.low is None
        or before.high is None
        or after.value is None
        or after.low is None
        or after.high is None
    ):
        return None
    value = after.value - before.value
    return Change(
        name,
        rows,
        before.value,
        after.value,
        value,
        value - math.hypot(after.value - after.low, before.high - before.value),
        value + math.hypot(after.high - after.value, before.value - before.low),
    )


def changes_by_group(run: Run) -> list[Change | None]:
    """Return the change of each group, in the order of the groups; nothing without a baseline."""
    if run.baseline is None:
        return []
    before, after = run.baseline.results.risk, run.chosen.results.risk
    return [
        change_between(name, new.rows, old, new)
        for name, old, new in zip(
            run.chosen.results.groups, before.by_group, after.by_group, strict=True
        )
    ]
