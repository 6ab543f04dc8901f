"""How a group's risk changed from the baseline to the method, and how sure that is.

Training leaves the difference between method and baseline with its own interval, row by row. Where
it is missing (runs of earlier versions, runs against each other), the interval of a difference
comes from the intervals of its two ends, as if these were independent (``mean_interval``). Models
that are measured on the same rows mostly err alike, so that the true interval is narrower: what is
called sure here is sure. Of a group with few test rows nothing is said.
"""

from dataclasses import dataclass

from fedminmax.report.html_read_run import Run
from fedminmax.report.mean_interval import MIN_ROWS, Estimate, difference
from fedminmax.report.run_folder_records import RISK, ChangeOfMetric, Interval

ALL_ROWS = "all rows"
ROW_BY_ROW = " The interval of a change is that of the differences row by row."
FROM_TWO_INTERVALS = (
    " The interval of a change is made from the two models' own intervals, as if they had been "
    "measured on different rows, which errs on the side of saying “noise”; calling 'fedminmax "
    "train' again adds it row by row."
)


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
    small: bool = False

    @property
    def has_enough_rows(self) -> bool:
        """Whether there are rows enough for a verdict, also in training."""
        return self.rows >= MIN_ROWS and not self.small

    @property
    def is_sure(self) -> bool:
        """Whether the interval leaves out 0, on rows enough."""
        return self.has_enough_rows and (self.low > 0 or self.high < 0)


def change_between(name: str, rows: int, before: Interval, after: Interval) -> Change | None:
    """Return the change; None where one of the ends has no value or no interval.

    >>> from fedminmax.report.run_folder_records import Interval
    >>> before, after = (Interval(value=v, low=v - r, high=v + r) for v, r in ((9, 3), (4, 4)))
    >>> change = change_between("a", 100, before, after)
    >>> change.value, change.low, change.high, change.is_sure
    (-5.0, -10.0, 0.0, False)
    """
    old, new = estimate_of(before), estimate_of(after)
    if old is None or new is None:
        return None
    found = difference(new, old)
    ends = (found.value, found.low, found.high)
    return Change(name, rows, old.value, new.value, *ends, small=after.small)


def estimate_of(interval: Interval) -> Estimate | None:
    """Return a value with its interval; None where one of them is missing."""
    if interval.value is None or interval.low is None or interval.high is None:
        return None
    return Estimate(interval.value, interval.low, interval.high)


def measured_change(run: Run, metric: str = RISK) -> ChangeOfMetric | None:
    """Return the change that training left, if it is from this run's baseline as it stands."""
    change = run.chosen.results.change
    if change is None or run.baseline is None:
        return None
    method = run.baseline.results.method
    same = (change.baseline.key, change.baseline.rounds) == (method.key, method.rounds)
    return change.metrics.get(metric) if same else None


def how_sure(run: Run) -> str:
    """Say how the intervals of changes were made; nothing without a baseline."""
    if run.baseline is None:
        return ""
    return FROM_TWO_INTERVALS if measured_change(run) is None else ROW_BY_ROW


def changes_by_group(run: Run) -> list[Change | None]:
    """Return the change of each group, in the order of the groups; nothing without a baseline."""
    return all_changes(run)[:-1]


def all_changes(run: Run, metric: str = RISK) -> list[Change | None]:
    """Return the change of each group and then that of all rows; nothing without a baseline."""
    if run.baseline is None:
        return []
    results = run.chosen.results
    before, after = run.baseline.results.test.metrics[metric], results.test.metrics[metric]
    names = (*results.groups, ALL_ROWS)
    rows = (*(own.rows for own in after.by_group), results.test.rows)
    ends = zip((*before.by_group, before.overall), (*after.by_group, after.overall), strict=True)
    measured = measured_change(run, metric)
    if measured is None:
        return [
            change_between(name, count, old, new)
            for name, count, (old, new) in zip(names, rows, ends, strict=True)
        ]
    differences = (*measured.by_group, measured.overall)
    return [
        _measured(name, count, old, new, own)
        for name, count, (old, new), own in zip(names, rows, ends, differences, strict=True)
    ]


def _measured(
    name: str, rows: int, before: Interval, after: Interval, own: Interval
) -> Change | None:
    measured = estimate_of(own)
    if before.value is None or after.value is None or measured is None:
        return None
    ends = (measured.value, measured.low, measured.high)
    return Change(name, rows, before.value, after.value, *ends, small=after.small)
