"""How a metric changed from the baseline to the method, by group, and how certain that is.

Training measures the difference record by record, with its own interval. If that is missing (other
metrics, runs against each other), the interval of a difference is computed from the intervals of
its two ends, as if these were independent. Models measured on the same records mostly err alike, so
the true interval is narrower: what is called a clear change here is one.
"""

from dataclasses import KW_ONLY, dataclass

from fedminmax.findings.records import RISK, ChangeOfMetric, Interval, Results
from fedminmax.metrics.intervals import MIN_ROWS, Estimate, difference, has_worst

EVERYONE = "all records"


@dataclass(frozen=True)
class Change:
    """A value before and after; ``value`` is after minus before, above 0 if it rose."""

    name: str
    records: int
    _: KW_ONLY
    before: float
    after: float
    value: float
    low: float
    high: float
    small: bool = False

    @property
    def has_enough_records(self) -> bool:
        """Whether there are enough test and training records to compare."""
        return self.records >= MIN_ROWS and not self.small

    @property
    def is_clear(self) -> bool:
        """Whether the interval excludes 0, with enough records."""
        return self.has_enough_records and (self.low > 0 or self.high < 0)


def change_between(
    name: str, records: int, before: Interval, after: Interval, measured: Interval | None = None
) -> Change | None:
    """Return the change; None if it has no value or no interval.

    >>> from fedminmax.findings.records import Interval
    >>> before, after = (Interval(value=v, low=v - r, high=v + r) for v, r in ((9, 3), (4, 4)))
    >>> change = change_between("a", 100, before, after)
    >>> change.value, change.low, change.high, change.is_clear
    (-5.0, -10.0, 0.0, False)
    """
    old, new = _estimate(before), _estimate(after)
    if measured is not None:
        change = _estimate(measured)
    else:
        change = None if old is None or new is None else difference(new, old)
    if before.value is None or after.value is None or change is None:
        return None
    return Change(
        name,
        records,
        before=before.value,
        after=after.value,
        value=change.value,
        low=change.low,
        high=change.high,
        small=after.small,
    )


def _estimate(interval: Interval) -> Estimate | None:
    """Return a value with its interval; None if one of them is missing."""
    if interval.value is None or interval.low is None or interval.high is None:
        return None
    return Estimate(interval.value, interval.low, interval.high)


def measured_change(
    results: Results, baseline: Results | None, metric: str = RISK
) -> ChangeOfMetric | None:
    """Return the change that training measured, if it is from this baseline."""
    change = results.change
    if change is None or baseline is None:
        return None
    method = baseline.method
    same = (change.baseline.key, change.baseline.rounds) == (method.key, method.rounds)
    return change.metrics.get(metric) if same else None


def changes_of(
    results: Results, baseline: Results | None, metric: str = RISK
) -> list[Change | None]:
    """Return the change of each group, then that of all records; [] without a baseline."""
    if baseline is None:
        return []
    before, after = baseline.test.metrics[metric], results.test.metrics[metric]
    measured = measured_change(results, baseline, metric)
    places = len(results.groups)
    differences: list[Interval | None] = [None] * (places + 1)
    if measured is not None:
        differences = [*measured.by_group, measured.overall]
    return [
        change_between(name, count, old, new, paired)
        for name, count, old, new, paired in zip(
            (*results.groups, EVERYONE),
            (*(group.rows for group in after.by_group), results.test.rows),
            (*before.by_group, before.overall),
            (*after.by_group, after.overall),
            differences,
            strict=True,
        )
    ]


def worst_of(results: Results) -> tuple[str, Interval] | None:
    """Return the group with the highest risk, and that risk; None if too few have enough records.

    The interval is that of the worst of all groups, not of this group alone.
    """
    if not results.test.metrics or results.risk.worst is None:
        return None
    named = list(zip(results.groups, results.risk.by_group, strict=True))
    compared = [(name, risk) for name, risk in named if risk.has_enough_rows]
    if not compared or not has_worst(len(compared), sum(risk.rows > 0 for _, risk in named)):
        return None
    name, risk = max(compared, key=lambda entry: entry[1].value or 0.0)
    ends = {"low": results.risk.worst.low, "high": results.risk.worst.high}
    return name, risk.model_copy(update=ends)
