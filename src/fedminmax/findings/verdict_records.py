"""The records of a verdict: a change of a group, and what became of everybody."""

from typing import Literal

from pydantic import BaseModel

from fedminmax.data.tables.census import Count
from fedminmax.metrics.intervals import MIN_ROWS


class Change(BaseModel, frozen=True):
    """A value of a group, or of all rows, before and after; ``value`` is after minus before.

    ``kind`` is what was measured, such as "missed"; ``rows`` are those that it is about.
    """

    group: str
    kind: str
    rows: Count
    before: float
    after: float
    value: float
    low: float
    high: float
    small: bool = False

    @property
    def has_enough_rows(self) -> bool:
        """Whether there are enough test and training rows to compare."""
        return self.rows >= MIN_ROWS and not self.small

    @property
    def is_clear(self) -> bool:
        """Whether the interval excludes 0, with enough rows."""
        return self.has_enough_rows and (self.low > 0 or self.high < 0)


class VerdictOfRun(BaseModel, frozen=True):
    """What became of the worst-off group and of everybody else; see ``findings.verdict``.

    ``worst_group`` is the change of the group that was worst off with the baseline, if one can be
    named; ``harms`` are all clear changes for the worse, the largest first. Rates are about the
    class ``positive``.
    """

    verdict: Literal[
        "helped",
        "helped, at a price",
        "no clear change",
        "no benefit: keep the standard model",
        "not finished",
    ]
    reason: str
    positive: str | None = None
    worst_group: Change | None = None
    harms: tuple[Change, ...] = ()

    @property
    def largest_harm(self) -> Change | None:
        """The largest clear change for the worse."""
        return self.harms[0] if self.harms else None
