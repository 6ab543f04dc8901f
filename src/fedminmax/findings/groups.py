"""Who was worst off, what the method changed for whom, and which mistakes became more frequent.

The result is told in the unit that a reader knows: how many of 1,000 are misclassified (the most
probable class is not the true one), or how far predictions are off. Groups with few records are
not told of. Accuracy may hide a harm, because one kind of mistake can become rarer while the other
becomes more frequent; so the rate that rose most is told, too, if its change is clear.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from fedminmax.core.small_groups import MERGED_NAME
from fedminmax.core.text import counted
from fedminmax.findings.changes import Change, change_between, changes_of, measured_change, worst_of
from fedminmax.findings.convergence import no_gain_yet
from fedminmax.findings.records import RISK, Interval, Measured, Results
from fedminmax.findings.text import (
    TOO_FEW,
    capitalised,
    decimals_of,
    estimate,
    interval_name,
    number,
    risk_name,
    span,
)
from fedminmax.metrics.intervals import MIN_ROWS
from fedminmax.metrics.row_scores import FALSE_ALARMS, MISSED

ACCURACY, ERROR = "accuracy", "absolute_error"
PEOPLE, PERCENT = 1000.0, 100.0
NO_WORST = (
    f"Fewer than two groups have {MIN_ROWS} test records or more, so it is unknown which group is "
    "worst off and which gained or did worse."
)
NO_BASELINE = "This run has no baseline, so it is unknown which groups gained and which did worse."


@dataclass(frozen=True)
class Fact:
    """A number of the run, and the baseline's."""

    name: str
    before: str | None
    after: str
    detail: str


@dataclass(frozen=True)
class Unit:
    """The unit in which a run is told: misclassified of 1,000, errors in the target's unit, risk.

    ``places`` are the decimals of errors and risks.
    """

    metric: str
    risk: str
    places: int

    @property
    def of_people(self) -> str:
        """Of how many a number is."""
        return " of 1,000" if self.metric == ACCURACY else ""

    def decimals(self, change: float) -> int:
        """Return how many decimals a change has; one of less than 2 of 1,000 has one."""
        if self.metric == ACCURACY:
            return 0 if abs(change) >= 2.0 else 1
        return self.places

    def says(self, model: str, value: str) -> str:
        """Say what a model's value means for a group; more models and values may follow."""
        if self.metric == ACCURACY:
            return f"of 1,000 in this group, about {value} are misclassified with {model}"
        if self.metric == ERROR:
            return f"predictions for this group are off on average by {value} with {model}"
        return f"the {self.risk} of this group is {value} with {model}"

    def convert(self, value: float) -> float:
        """Return a value in this unit; accuracy becomes the number misclassified of 1,000."""
        return PEOPLE * (1.0 - value) if self.metric == ACCURACY else value

    def convert_change(self, change: Change) -> Change:
        """Return a change in this unit."""
        if self.metric != ACCURACY:
            return change
        return replace(
            change,
            before=self.convert(change.before),
            after=self.convert(change.after),
            value=-PEOPLE * change.value,
            low=-PEOPLE * change.high,
            high=-PEOPLE * change.low,
        )


def unit_of(results: Results) -> Unit:
    """Return the unit in which this run is told."""
    told = ACCURACY if results.task == "classification" else ERROR
    metric = told if told in results.test.metrics else RISK
    return Unit(metric, risk_name(results), decimals_of(results, metric))


def story_of(results: Results, baseline: Results | None) -> str:
    """Tell who was worst off, what changed for them and for others, and who is worst off now."""
    worst = worst_of(baseline or results)
    if worst is None:
        return NO_WORST
    name, unit = worst[0], unit_of(results)
    method = results.method.name
    if baseline is None:
        level = results.test.metrics[unit.metric].by_group[results.groups.index(name)]
        decimals = unit.decimals(PEOPLE)
        said = unit.says(method, number(unit.convert(level.value or 0.0), decimals))
        interval = ""
        if level.low is not None and level.high is not None:
            low, high = sorted(map(unit.convert, (level.low, level.high)))
            interval = f" ({interval_name(results.test)} {span(low, high, decimals)})"
        return f"“{name}” is worst off: {said}{interval}. {NO_BASELINE}"
    by_group = changes_of(results, baseline, unit.metric)[:-1]
    changes = [unit.convert_change(change) for change in by_group if change]
    compared = [change for change in changes if change.has_enough_records]
    of_worst = next((change for change in compared if change.name == name), None)
    start = f"“{name}” was worst off with {baseline.method.name}"
    if of_worst is None:
        return f"{start}. Without an interval it is unknown what {method} changed for it."
    decimals = unit.decimals(of_worst.value)
    after, before = (number(value, decimals) for value in (of_worst.after, of_worst.before))
    levels = f"{unit.says(method, after)}, {before} with {baseline.method.name}"
    doubt = no_gain_yet(*((one.method.name, one.converged) for one in (results, baseline)))
    if doubt:
        return f"{start}: {levels}. That is {doubt}."
    others = [change for change in compared if change is not of_worst and change.is_clear]
    sentences = [
        f"{start}: {levels}.",
        _clear(results, of_worst, unit),
        _others(results, others, unit),
        _worst_now(results, of_worst.name, worst[1]),
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def _size(results: Results, change: Change, unit: Unit) -> str:
    """Format the size of a clear change, its direction and its interval."""
    decimals = unit.decimals(change.value)
    low, high = sorted((abs(change.low), abs(change.high)))
    fewer = "fewer" if unit.of_people else "less"
    words = f"{'more' if change.value > 0 else fewer}{unit.of_people}"
    return (
        f"{number(abs(change.value), decimals)} {words} ({interval_name(results.test)} "
        f"{span(low, high, decimals)})"
    )


def _clear(results: Results, change: Change, unit: Unit) -> str:
    if change.is_clear:
        return f"That is {_size(results, change, unit)}."
    ends = span(change.low, change.high, unit.decimals(change.value))
    return (
        f"On {counted(change.records, 'test record')} this is no clear change "
        f"({interval_name(results.test)} {ends})."
    )


def _others(results: Results, changes: list[Change], unit: Unit) -> str:
    """Say which other groups clearly did worse, and how many did better."""
    risen = sorted((c for c in changes if c.value > 0), key=lambda c: c.value, reverse=True)
    better = len(changes) - len(risen)
    text = "No other group clearly did worse."
    if risen:
        text = f"“{risen[0].name}” did worse: {_size(results, risen[0], unit)}."
    if len(risen) > 1:
        text += f" So did {counted(len(risen) - 1, 'more group')}."
    if better:
        text += f" {counted(better, 'other group')} clearly did better."
    return text


def _worst_now(results: Results, before: str, risk_before: Interval) -> str:
    """Name the group that is worst off now, if it is another one."""
    worst = worst_of(results)
    if worst is None or worst[0] == before:
        return ""
    text = f"“{worst[0]}” is worst off now"
    if (worst[1].value or 0.0) > (risk_before.value or 0.0):
        text += f", and has a higher {risk_name(results)} than “{before}” had before"
    return f"{text}."


def facts_of(results: Results, baseline: Results | None) -> list[Fact]:
    """Return the key numbers: the risk of the worst group and of all records, the difference.

    With a baseline, the interval is that of the change, which is what the numbers side by side ask
    for; without one, it is that of the number.
    """
    risk, worst = capitalised(risk_name(results)), worst_of(results)
    measured = measured_change(results, baseline)
    none = Interval(value=None, low=None, high=None)

    def fact(name: str, take: Callable[[Results], Interval], measured: Interval | None) -> Fact:
        new, old = take(results), None if baseline is None else take(baseline)
        decimals = decimals_of(results)
        detail = f"{interval_name(results.test)} {span(new.low, new.high, decimals)}"
        if new.value is None:
            detail = f"{TOO_FEW}: fewer than two groups have {MIN_ROWS}"
        elif old is not None:
            detail = _change_text(results, change_between("", MIN_ROWS, old, new, measured))
        before = None if old is None else number(old.value, decimals)
        return Fact(name, before, number(new.value, decimals), detail)

    first = fact(
        f"{risk} of the worst group",
        lambda own: (worst_of(own) or ("", none))[1],
        measured.worst if measured else None,
    )
    return [
        replace(first, detail=f"{first.detail} · {worst[0]}") if worst else first,
        fact(
            f"{risk} of all records",
            lambda own: own.risk.overall,
            measured.overall if measured else None,
        ),
        fact("Difference, highest minus lowest group", lambda own: own.risk.difference, None),
        *_mistakes_fact(results, baseline),
    ]


def _change_text(results: Results, change: Change | None) -> str:
    """Report a change with its interval, and whether it is clear."""
    if change is None:
        return "the change has no interval"
    # One digit more: a change is smaller than what changes.
    decimals = decimals_of(results) + 1
    sign = "+" if change.value > 0 else ""
    ends = f"{interval_name(results.test)} {span(change.low, change.high, decimals)}"
    what = "clear change" if change.is_clear else "no clear change"
    return f"{what}: {sign}{number(change.value, decimals)} ({ends})"


def kinds_of_mistakes(results: Results, baseline: Results | None) -> list[str]:
    """Return the kinds of mistakes that were measured with the baseline and with the method."""
    if baseline is None or len(results.classes) != 2:
        return []
    both = results.test.metrics.keys() & baseline.test.metrics.keys()
    return [metric for metric in (MISSED, FALSE_ALARMS) if metric in both]


def _largest_rise(results: Results, baseline: Results | None) -> tuple[str, Change] | None:
    """Return the kind of mistake, and the group, whose rate clearly rose most."""
    risen = [
        (metric, change)
        for metric in kinds_of_mistakes(results, baseline)
        for change in changes_of(results, baseline, metric)[:-1]
        if change is not None and change.is_clear and change.value > 0
    ]
    return max(risen, key=lambda entry: entry[1].value, default=None)


def mistakes_of(results: Results, baseline: Results | None) -> str:
    """Say which kind of mistake clearly became more frequent, and for whom; "" if none did."""
    rise = _largest_rise(results, baseline)
    if rise is None or baseline is None:
        return ""
    metric, change = rise
    positive = f"“{results.classes[1]}”"
    after, before = (number(PEOPLE * value, 0) for value in (change.after, change.before))
    ends = span(PEOPLE * change.low, PEOPLE * change.high, 0)
    whom, verb = f"that are {positive}", "misses"
    if metric == FALSE_ALARMS:
        whom, verb = f"that are not {positive}", "falsely flags"
    return (
        f"Of 1,000 in “{change.name}” {whom}, {results.method.name} {verb} {after}, "
        f"{baseline.method.name} {before} ({interval_name(results.test)} of the change {ends})."
    )


def _mistakes_fact(results: Results, baseline: Results | None) -> list[Fact]:
    rise = _largest_rise(results, baseline)
    if rise is None:
        return []
    metric, change = rise
    what = "Missed" if metric == MISSED else "False alarms of"
    ends = span(PERCENT * change.low, PERCENT * change.high, 0)
    detail = (
        f"clear change: +{number(PERCENT * change.value, 0)} percentage points "
        f"({interval_name(results.test)} {ends}) · {change.name}"
    )
    before, after = (f"{number(PERCENT * value, 0)} %" for value in (change.before, change.after))
    return [Fact(f"{what} “{results.classes[1]}”, where it rose most", before, after, detail)]


def small_groups_text(groups: tuple[str, ...], test: Measured) -> str:
    """List the groups with too few records to compare; "" if there are none."""
    small = test.small_groups(groups)
    few = [f"{name} ({rows:,})" for name, rows in small.items() if rows < MIN_ROWS]
    untrained = [name for name, rows in small.items() if rows >= MIN_ROWS]
    sentences = []
    if few:
        sentences.append(f"Too few test records to say, under {MIN_ROWS}: {', '.join(few)}.")
    if untrained:
        sentences.append(f"Too few training records to be trained for: {', '.join(untrained)}.")
    return " ".join(sentences)


def merged_groups_text(results: Results) -> str:
    """List the groups that were merged into one, with the risk of each; "" if none were."""
    merged = results.merged
    if merged is None:
        return ""
    listing = ", ".join(merged.groups)
    if merged.test.rows:
        decimals = decimals_of(results, RISK, merged.test)
        listing = "; ".join(
            f"{name} {estimate(risk, decimals)}, {counted(risk.rows, 'test record')}"
            if risk.rows
            else f"{name}, no test records"
            for name, risk in zip(merged.groups, merged.test.metrics[RISK].by_group, strict=True)
        )
    return (
        f"'{MERGED_NAME}' are {len(merged.groups)} groups, each too small to be trained for: "
        f"{listing}."
    )
