"""Which mistakes changed: those of the positive class that are missed, and false alarms.

Accuracy may hide a harm, because one kind of mistake can become rarer while the other becomes more
frequent. So the rate that rose most beyond noise is told at the beginning, whatever the risk did.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from fedminmax.findings.records import Interval
from fedminmax.report.read_run import Run
from fedminmax.report.story import Change, Fact, all_changes
from fedminmax.report.style import Table
from fedminmax.report.text import NOTHING, interval_name, number, span
from fedminmax.runs.metric_names import FALSE_ALARMS, MISSED

PEOPLE = 1000.0
PERCENT = 100.0


@dataclass(frozen=True)
class RateChange:
    """The change of one kind of mistake in one group."""

    metric: str
    change: Change


def mistakes(run: Run) -> str:
    """Say which kind of mistake became more frequent beyond noise, and for whom; "" if none did."""
    found = _largest_rise(run)
    if found is None:
        return ""
    own, positive = found.change, run.chosen.results.classes[1]
    after, before = (number(PEOPLE * value, 0) for value in (own.after, own.before))
    interval = f"{interval_name(run.chosen.results)} of the change "
    interval += span(PEOPLE * own.low, PEOPLE * own.high, 0)
    if found.metric == MISSED:
        return (
            f"Of 1,000 in “{own.name}” that are “{positive}”, {after} are missed instead of "
            f"{before} ({interval})."
        )
    return (
        f"Of 1,000 in “{own.name}” that are not “{positive}”, {after} are taken for it instead of "
        f"{before} ({interval})."
    )


def mistakes_fact(run: Run) -> list[Fact]:
    """Return the same as a number for the first screen, if there is any."""
    found = _largest_rise(run)
    if found is None:
        return []
    own, positive = found.change, run.chosen.results.classes[1]
    what = "Missed" if found.metric == MISSED else "False alarms of"
    points = number(PERCENT * own.value, 0)
    detail = (
        f"change +{points} percentage points, beyond noise ({interval_name(run.chosen.results)} "
        f"{span(PERCENT * own.low, PERCENT * own.high, 0)}) · {own.name}"
    )
    before, after = (f"{number(PERCENT * value, 0)} %" for value in (own.before, own.after))
    return [Fact(f"{what} “{positive}”, where it rose most", before, after, detail)]


def mistakes_table(run: Run) -> Table | None:
    """Return both kinds of mistakes by group, of baseline and method; None without them."""
    kinds = _measured_kinds(run)
    if run.baseline is None or not kinds:
        return None
    results, before = run.chosen.results, run.baseline.results
    columns = [own.test.metrics[metric] for metric in kinds for own in (before, results)]
    positive = f"“{results.classes[1]}”"
    words = {MISSED: f"missed {positive}", FALSE_ALARMS: f"false alarms of {positive}"}
    names = [own.method.name for own in (before, results)]
    headers = [f"{words[metric]}, {name}" for metric in kinds for name in names]
    lines = [
        (group, f"{own.rows:,}", *(_rate(column.by_group[place]) for column in columns))
        for place, (group, own) in enumerate(
            zip(results.groups, results.risk.by_group, strict=True)
        )
    ]
    whole = ("all rows", f"{results.test.rows:,}", *(_rate(column.overall) for column in columns))
    return Table(
        f"Missed: share of those that are {positive}. False alarms: share of those that are not. "
        f"In parentheses: {interval_name(results)}",
        ("Group", "Test rows", *headers),
        (*lines, whole),
    )


def _rate(own: Interval) -> str:
    if own.value is None:
        return NOTHING
    value = f"{number(PERCENT * own.value, 0)} %"
    if own.low is None or own.high is None:
        return value
    return f"{value} ({span(PERCENT * own.low, PERCENT * own.high, 0)})"


def _largest_rise(run: Run) -> RateChange | None:
    risen = [found for found in _changes(run) if found.change.is_sure and found.change.value > 0]
    return max(risen, key=lambda found: found.change.value, default=None)


def _changes(run: Run) -> Iterator[RateChange]:
    for metric in _measured_kinds(run):
        for change in all_changes(run, metric)[:-1]:
            if change is not None:
                yield RateChange(metric, change)


def _measured_kinds(run: Run) -> list[str]:
    """Return the kinds of mistakes that were measured with the baseline and with the method."""
    results = run.chosen.results
    if run.baseline is None or len(results.classes) != 2:
        return []
    both = results.test.metrics.keys() & run.baseline.results.test.metrics.keys()
    return [metric for metric in (MISSED, FALSE_ALARMS) if metric in both]
