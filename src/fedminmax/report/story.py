"""A run's result in one sentence: who was worst off, what it gained, who paid, how certain it is.

The sentence is based on each group's change in risk from the baseline to the method (``Change``).
Groups with few test rows are not mentioned.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace

from fedminmax.core.text import counted, listed
from fedminmax.findings.records import RISK, ChangeOfMetric, Interval, Results
from fedminmax.metrics.intervals import MIN_ROWS, NO_ESTIMATE, Estimate, difference, has_worst
from fedminmax.report.read_run import Run
from fedminmax.report.text import decimals_of, estimate, interval_name, number, risk_name, span
from fedminmax.runs.convergence import no_gain_yet
from fedminmax.runs.measure import interval_of

ALL_ROWS = "all rows"
ROW_BY_ROW = " The interval of a change is that of the differences row by row."
FROM_TWO_INTERVALS = (
    " The interval of a change is computed from the two models' own intervals, as if they had been "
    "measured on different rows, which errs on the side of “noise”; run 'fedminmax train' again "
    "to add the interval row by row."
)
TOO_FEW = f"too few rows to say: fewer than two groups have {MIN_ROWS}"


@dataclass(frozen=True)
class Change:
    """A risk before and after; ``value`` is after minus before, above 0 if it rose.

    Training writes the difference between method and baseline with its own interval, row by row.
    If it is missing (runs against each other), the interval of a
    difference is computed from the intervals of its two ends, as if these were independent
    (``intervals``). Models measured on the same rows mostly err alike, so the true interval is
    narrower: what is called sure here is sure.
    """

    name: str
    rows: int
    _: KW_ONLY
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
    def is_sure(self) -> bool:
        """Whether the interval excludes 0, with enough rows."""
        return self.has_enough_rows and (self.low > 0 or self.high < 0)


def change_between(name: str, rows: int, before: Interval, after: Interval) -> Change | None:
    """Return the change; None if one of the ends has no value or no interval.

    >>> from fedminmax.findings.records import Interval
    >>> before, after = (Interval(value=v, low=v - r, high=v + r) for v, r in ((9, 3), (4, 4)))
    >>> change = change_between("a", 100, before, after)
    >>> change.value, change.low, change.high, change.is_sure
    (-5.0, -10.0, 0.0, False)
    """
    old, new = estimate_of(before), estimate_of(after)
    if old is None or new is None:
        return None
    found = difference(new, old)
    return Change(
        name,
        rows,
        before=old.value,
        after=new.value,
        value=found.value,
        low=found.low,
        high=found.high,
        small=after.small,
    )


def estimate_of(interval: Interval) -> Estimate | None:
    """Return a value with its interval; None if one of them is missing."""
    if interval.value is None or interval.low is None or interval.high is None:
        return None
    return Estimate(interval.value, interval.low, interval.high)


def measured_change(run: Run, metric: str = RISK) -> ChangeOfMetric | None:
    """Return the change that training wrote, if it is from this run's current baseline."""
    change = run.chosen.results.change
    if change is None or run.baseline is None:
        return None
    method = run.baseline.results.method
    same = (change.baseline.key, change.baseline.rounds) == (method.key, method.rounds)
    return change.metrics.get(metric) if same else None


def how_sure(run: Run) -> str:
    """Explain how the intervals of changes were made; "" without a baseline."""
    if run.baseline is None:
        return ""
    return FROM_TWO_INTERVALS if measured_change(run) is None else ROW_BY_ROW


def changes_by_group(run: Run) -> list[Change | None]:
    """Return the change of each group, in the order of the groups; [] without a baseline."""
    return all_changes(run)[:-1]


def all_changes(run: Run, metric: str = RISK) -> list[Change | None]:
    """Return the change of each group, then that of all rows; [] without a baseline."""
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
    return Change(
        name,
        rows,
        before=before.value,
        after=after.value,
        value=measured.value,
        low=measured.low,
        high=measured.high,
        small=after.small,
    )


@dataclass(frozen=True)
class Fact:
    """A number of the run, and the baseline's."""

    name: str
    before: str | None
    after: str
    detail: str


def worst_of(results: Results) -> tuple[str, Interval] | None:
    """Return the group with the highest risk, and that risk; None if too few have enough rows."""
    known = [
        (name, risk)
        for name, risk in zip(results.groups, results.risk.by_group, strict=True)
        if risk.has_enough_rows
    ]
    if not has_worst(len(known), sum(risk.rows > 0 for risk in results.risk.by_group)):
        return None
    found = max(known, key=lambda entry: entry[1].value or 0.0, default=None)
    chosen = results.risk.worst
    if found is None or chosen is None:
        return None
    # The interval of the worst of all groups, not of this group alone.
    return found[0], found[1].model_copy(update={"low": chosen.low, "high": chosen.high})


def story(run: Run) -> str:
    """Return the sentence about one run."""
    found = worst_of((run.baseline or run.chosen).results)
    if found is None:
        return (
            f"Fewer than two groups have {MIN_ROWS} test rows or more: too few to say which group "
            "is worst off, which gained and which paid."
        )
    worst, risk = found
    if run.baseline is None:
        return _without_baseline(run.chosen.results, worst, risk)
    baseline = run.baseline.results
    changes = [change for change in changes_by_group(run) if change and change.has_enough_rows]
    own = next((change for change in changes if change.name == worst), None)
    start = (
        f"Under {baseline.method.name}, “{worst}” was worst off, with a {risk_name(baseline)} of "
        f"{number(risk.value, decimals_of(baseline))} on {counted(risk.rows, 'test row')}"
    )
    if own is None:
        return f"{start}; without an interval it is unknown what {run.label} changed for it."
    doubt = no_gain_yet(
        *((own.method.name, own.converged) for own in (run.chosen.results, baseline))
    )
    if doubt:
        return f"{start}; {_difference(run, own)}, {doubt}."
    others = [change for change in changes if change is not own]
    clauses = [start, _gain(run, own), _paid(run, others), _now(run, own)]
    return "; ".join(clause for clause in clauses if clause) + "."


def _without_baseline(results: Results, worst: str, risk: Interval) -> str:
    decimals = decimals_of(results)
    return (
        f"{results.method.name} leaves “{worst}” worst off, with a {risk_name(results)} of "
        f"{number(risk.value, decimals)} ({interval_name(results)} "
        f"{span(risk.low, risk.high, decimals)}) on {counted(risk.rows, 'test row')}; this run has "
        "no baseline, so it is unknown which groups gained and which paid."
    )


def _difference(run: Run, own: Change) -> str:
    """Report a group's risk now, without calling it better or worse."""
    results = run.chosen.results
    decimals = decimals_of(results)
    size, ends = number(own.value, decimals), span(own.low, own.high, decimals)
    return (
        f"with {run.label} it has {number(own.after, decimals)}, a difference of {size} "
        f"({interval_name(results)} {ends})"
    )


def _gain(run: Run, own: Change) -> str:
    results = run.chosen.results
    decimals, name = decimals_of(results), interval_name(results)
    after = number(own.after, decimals)
    size = number(abs(own.value), decimals)
    if not own.is_sure:
        return (
            f"with {run.label} it has {after}, and the difference of "
            f"{number(own.value, decimals)} ({name} {span(own.low, own.high, decimals)}) is within "
            "the noise of that many rows"
        )
    if own.value < 0:
        return (
            f"{run.label} reduced it to {after}, a gain of {size} "
            f"({name} {span(-own.high, -own.low, decimals)}), more than noise"
        )
    return (
        f"{run.label} raised it to {after}, a loss of {size} "
        f"({name} {span(own.low, own.high, decimals)}), more than noise"
    )


def _paid(run: Run, others: Sequence[Change]) -> str:
    """Name the other group that paid beyond noise; if several did, the one that paid most."""
    decimals = decimals_of(run.chosen.results)
    rises = [change for change in others if change.value > 0]
    payers = sorted((c for c in rises if c.is_sure), key=lambda c: c.value, reverse=True)
    if not rises:
        return "no other group's risk rose"
    if not payers:
        return "no other group's risk rose by more than noise"
    most = payers[0]
    rise = f"{number(most.value, decimals)} ({span(most.low, most.high, decimals)})"
    if len(payers) == 1:
        return f"“{most.name}” paid: its risk rose by {rise}"
    more = counted(len(payers) - 1, "more group")
    return f"“{most.name}” paid most: its risk rose by {rise}, and {more} also paid"


def _now(run: Run, own: Change) -> str:
    """Name the group that is worst off now, if it is another one."""
    found = worst_of(run.chosen.results)
    if found is None or found[0] == own.name:
        return ""
    now, risk = found
    shown = number(risk.value, decimals_of(run.chosen.results))
    if (risk.value or 0.0) > own.before:
        return f"but now “{now}” is worst off, with {shown}, more than “{own.name}” had before"
    return f"“{now}” is now worst off, with {shown}"


def facts(run: Run) -> list[Fact]:
    """Return the key numbers: the worst group's risk, the mean over rows, the gap.

    With a baseline, the interval is that of the change, which is what the numbers side by side ask
    for; without one, it is that of the number.
    """
    after, before = run.chosen.results, run.baseline.results if run.baseline else None
    decimals = decimals_of(after)
    measured = measured_change(run)

    def fact(
        name: str, new: Interval, old: Interval | None, own: Interval | None, who: str
    ) -> Fact:
        shown = None if old is None else number(old.value, decimals)
        detail = f"{interval_name(after)} {span(new.low, new.high, decimals)}"
        if new.value is None:
            detail = TOO_FEW
        elif old is not None:
            detail = _change_text(run, old, new, own)
        return Fact(name, shown, number(new.value, decimals), f"{detail}{who}")

    worst, risk = worst_of(after), risk_name(after)
    risk = f"{risk[0].upper()}{risk[1:]}"
    return [
        fact(
            f"{risk} of the worst group",
            _risk_of_worst(after),
            _risk_of_worst(before) if before else None,
            measured.worst if measured else None,
            f" · {worst[0]}" if worst else "",
        ),
        fact(
            f"{risk} of all rows",
            after.risk.overall,
            before.risk.overall if before else None,
            measured.overall if measured else None,
            "",
        ),
        fact(
            "Gap, highest to lowest group with enough rows",
            after.risk.gap,
            before.risk.gap if before else None,
            None,
            "",
        ),
    ]


def _change_text(run: Run, before: Interval, after: Interval, measured: Interval | None) -> str:
    """Report the change with its interval, and whether it is more than noise."""
    found = change_between("", MIN_ROWS, before, after)
    own = estimate_of(measured) if measured else None
    if found is not None and own is not None:
        found = replace(found, value=own.value, low=own.low, high=own.high)
    if found is None:
        return "the change has no interval"
    # One digit more: a change is smaller than what changes.
    decimals = decimals_of(run.chosen.results) + 1
    sign = "+" if found.value > 0 else ""
    sure = "beyond noise" if found.is_sure else "within noise"
    return (
        f"change {sign}{number(found.value, decimals)}, {sure} ({interval_name(run.chosen.results)}"
        f" {span(found.low, found.high, decimals)})"
    )


def comparison(runs: Sequence[Run]) -> str:
    """Report which of several runs, or baselines, has the lowest worst-group risk, and how sure."""
    known = [(label, own) for label, own in _candidates(runs) if worst_of(own)]
    if len(known) < 2:
        return f"The runs cannot be compared: {TOO_FEW}."
    ranked = sorted(known, key=lambda pair: _risk_of_worst(pair[1]).value or 0.0)
    first, second = (_risk_of_worst(own) for _, own in ranked[:2])
    results = ranked[0][1]
    decimals = decimals_of(results)
    doubts = [label for label, own in ranked if not own.converged]
    between = change_between("", min(first.rows, second.rows), second, first)
    sure = "more than noise" if between and between.is_sure else "a difference within noise"
    baselines = " and their baselines" if any(run.baseline for run in runs) else ""
    return (
        f"Of {len(runs)} runs{baselines}, {ranked[0][0]} has the lowest worst-group "
        f"{risk_name(results)}, {estimate(first, decimals)}; next is {ranked[1][0]} with "
        f"{estimate(second, decimals)}, {sure}{_may_change(doubts)}."
    )


def _candidates(runs: Sequence[Run]) -> list[tuple[str, Results]]:
    """Return all models with their names, a baseline that several runs share once."""
    found = [(run.label, run.chosen.results) for run in runs]
    seen: list[Results] = []
    for run in runs:
        if run.baseline is None:
            continue
        own = run.baseline.results
        if all((own.method, own.risk) != (other.method, other.risk) for other in seen):
            seen.append(own)
            found.append((f"{own.method.name} (baseline of {run.label})", own))
    return found


def _may_change(doubts: Sequence[str]) -> str:
    if not doubts:
        return ""
    return f"; with more rounds this may change, because not all have converged: {listed(doubts)}"


def _risk_of_worst(results: Results) -> Interval:
    worst = worst_of(results)
    return interval_of(NO_ESTIMATE) if worst is None else worst[1]
