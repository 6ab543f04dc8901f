"""How a metric changed from the baseline to the method, by group, and how certain that is.

Training measures the difference record by record, and the intervals of all differences hold at
once. Runs that are compared with each other have no such interval: that of a difference is computed
from the intervals of its two ends, as if these were independent. Models measured on the same
records mostly err alike, so the true interval is narrower: what is called a clear change is one.
"""

from fedminmax.findings.records import RISK, Interval, Results
from fedminmax.findings.verdict_records import Change
from fedminmax.metrics.intervals import Estimate, difference, has_worst

EVERYONE = "all records"


def change_between(kind: str, rows: int, before: Interval, after: Interval) -> Change | None:
    """Return the change between two runs; None if it has no value or no interval.

    >>> from fedminmax.findings.records import Interval
    >>> before, after = (Interval(value=v, low=v - r, high=v + r) for v, r in ((9, 3), (4, 4)))
    >>> change = change_between("risk", 100, before, after)
    >>> change.value, change.low, change.high, change.is_clear
    (-5.0, -10.0, 0.0, False)
    """
    old, new = _estimate(before), _estimate(after)
    if old is None or new is None:
        return None
    change = difference(new, old)
    return Change(
        group="",
        kind=kind,
        rows=rows,
        before=old.value,
        after=new.value,
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


def changes_of(results: Results, metric: str = RISK) -> list[Change | None]:
    """Return the change of each group, then that of all records; [] if it was not measured."""
    if results.change is None or metric not in results.change.metrics:
        return []
    levels, changes = results.test.metrics[metric], results.change.metrics[metric]
    return [
        _measured(name, metric, level, _estimate(paired), paired)
        for name, level, paired in zip(
            (*results.groups, EVERYONE),
            (*levels.by_group, levels.overall),
            (*changes.by_group, changes.overall),
            strict=True,
        )
    ]


def _measured(
    name: str, metric: str, level: Interval, change: Estimate | None, paired: Interval
) -> Change | None:
    if level.value is None or change is None:
        return None
    return Change(
        group=name,
        kind=metric,
        rows=paired.rows,
        before=level.value - change.value,
        after=level.value,
        value=change.value,
        low=change.low,
        high=change.high,
        small=paired.small,
    )


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
