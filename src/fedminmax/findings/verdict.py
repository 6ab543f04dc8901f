"""The verdict on a run, by one printed rule, with its reason and the numbers that it rests on.

It is about mistakes: how many of 1,000 are misclassified (the most probable class is not the true
one) and, of two classes, how many of the positive class are missed and how many others are false
alarms, because accuracy hides a harm if one kind becomes rarer while the other becomes more
frequent. For numbers it is about how far predictions are off. Risks decide only who was worst off:
no model has a lower mean risk in training than the standard one, so by risks everything has a
price. All changes are paired, and their intervals hold at once (``metrics.paired_change``), so the
choice of a group or of the largest harm needs no further correction.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fedminmax.core.text import counted, listed
from fedminmax.findings.disclosure import MANY, decimals_told
from fedminmax.findings.records import RISK, Change, Interval, Results, VerdictOfRun
from fedminmax.findings.text import (
    NOTHING,
    TOO_FEW,
    decimals_of,
    estimate,
    interval_name,
    number,
    risk_name,
    signed,
)
from fedminmax.methods.catalogue import CARDS
from fedminmax.metrics.intervals import MIN_ROWS, Estimate, difference, has_worst
from fedminmax.metrics.row_scores import FALSE_ALARMS, MISSED

ACCURACY, ERROR = "accuracy", "absolute_error"
PEOPLE = 1000.0
# What a metric's change is called; the first of a task's is the measure in which a run is told.
KINDS = {
    ACCURACY: "misclassified",
    MISSED: "missed",
    FALSE_ALARMS: "false alarms",
    ERROR: "absolute error",
    RISK: RISK,
}
# Kinds that are told of 1,000 people: among whom, and what happens to them.
OF_PEOPLE = {
    "misclassified": ("", "are misclassified"),
    "missed": (" that are “{}”", "are missed"),
    "false alarms": (" that are not “{}”", "are false alarms"),
}
STANDARD = "standard"
NOT_FINISHED: Final = "not finished"
RULE = (
    "A mistake is a misclassified record and, where there are two classes, also a missed case or a "
    "false alarm; where a number is predicted, it is the absolute error. A change is clear if its "
    "interval excludes 0; the intervals hold for all comparisons at once. Helped: the group that "
    "was worst off with the standard model (highest risk) is clearly misclassified less often, or "
    "has clearly smaller errors. Helped, at a price: it is, but some kind of mistake clearly grew "
    "for a group or for all records. No benefit: some kind of mistake clearly grew, and either the "
    "worst-off group was not helped, or another group that clearly did worse is now worse off than "
    "the worst-off group was. No clear change: neither help nor harm is clear. Not finished: "
    "training needs more rounds, or there is nothing to compare with."
)
NO_WORST = (
    f"Fewer than two groups have {MIN_ROWS} test records or more, so it is unknown which group is "
    "worst off."
)
NO_TEST = "There are no test records to compare on (held_out or test in [data])."
NO_BASELINE = "There is no standard model to compare with (baseline in [method])."
EVERYONE = "all records"


@dataclass(frozen=True)
class ChangeTexts:
    """A change as text: before and after, the difference and its interval, and for whom."""

    before: str
    after: str
    value: str
    low: str
    high: str
    meaning: str


def change_between(before: Interval, after: Interval) -> Change | None:
    """Return the change between two runs; None if it has no value or no interval.

    Runs that are compared with each other were not measured together: the interval is computed from
    those of both ends, as if these were independent. Models measured on the same records mostly err
    alike, so the true interval is narrower: what is called a clear change is one.

    >>> before, after = (
    ...     Interval(value=v, low=v - r, high=v + r, rows=100) for v, r in ((9, 3), (4, 4))
    ... )
    >>> change = change_between(before, after)
    >>> change.value, change.low, change.high, change.is_clear
    (-5.0, -10.0, 0.0, False)
    """
    old, new = _estimate(before), _estimate(after)
    if old is None or new is None:
        return None
    rows = min(before.rows, after.rows)
    level = after.model_copy(update={"rows": rows})
    return _change("", RISK, new.value, difference(new, old), level)


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
        _change(name, metric, level.value, _estimate(paired), paired)
        for name, level, paired in zip(
            (*results.groups, EVERYONE),
            (*levels.by_group, levels.overall),
            (*changes.by_group, changes.overall),
            strict=True,
        )
    ]


def _change(
    group: str, metric: str, after: float | None, change: Estimate | None, measured: Interval
) -> Change | None:
    if after is None or change is None:
        return None
    return Change(
        group=group,
        kind=metric,
        rows=measured.rows,
        before=after - change.value,
        after=after,
        value=change.value,
        low=change.low,
        high=change.high,
        small=measured.small,
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


def model_names(results: Results) -> tuple[str, str]:
    """Name both models: the one to compare with, and the new one."""
    if results.is_audit:
        other = results.change.baseline.name if results.change else STANDARD
        return other, results.method.name
    card = CARDS.get(results.method.key)
    is_minimax = card is None or card.minimax_over_groups
    return STANDARD, "minimax" if is_minimax else results.method.name


def kinds_of(results: Results) -> list[str]:
    """Return the metrics of mistakes that a verdict looks at; the run is told in the first."""
    told = ACCURACY if results.task == "classification" else ERROR
    measured = results.change.metrics if results.change else results.test.metrics
    of_classes = (MISSED, FALSE_ALARMS) if len(results.classes) == 2 else ()
    found = [metric for metric in (told, *of_classes) if metric in measured]
    return found if told in found else [RISK, *found]


def mistakes_of(results: Results, metric: str) -> list[Change | None]:
    """Return the changes of each group and of all records as mistakes: above 0 is worse."""
    return [change and _as_mistakes(change) for change in changes_of(results, metric)]


def _as_mistakes(change: Change) -> Change:
    kind: dict[str, object] = {"kind": KINDS[change.kind]}
    if change.kind == ACCURACY:
        kind |= {"before": 1.0 - change.before, "after": 1.0 - change.after}
        kind |= {"value": -change.value, "low": -change.high, "high": -change.low}
    return change.model_copy(update=kind)


def judge(results: Results) -> VerdictOfRun:
    """Return the verdict on a method's results."""
    doubt = _not_finished(results)
    if doubt:
        return VerdictOfRun(verdict=NOT_FINISHED, reason=doubt)
    changes = {
        metric: [change for change in mistakes_of(results, metric) if change is not None]
        for metric in kinds_of(results)
    }
    told = next(iter(changes.values()))
    clear = [change for own in changes.values() for change in own if change.is_clear]
    harms = sorted((one for one in clear if one.value > 0), key=lambda one: -one.value)
    name = worst_before(results)
    worst = next((change for change in told if change.group == name), None)
    # A group that did worse and is now worse off than the worst-off group was: harm has moved.
    passed = [
        change
        for change in told
        if worst
        and change in harms
        and change.group not in (EVERYONE, name)
        and change.after > worst.before
    ]
    helped = worst is not None and worst.is_clear and worst.value < 0 and not passed
    sentences = [
        _about_worst(results, worst) if worst else NO_WORST,
        _about_harms(results, harms, worst),
        *(f"“{one.group}” is now worse off than “{name}” was." for one in passed[:1]),
        _about_others(told, worst),
        "" if passed else _worst_now(results, name),
    ]
    return VerdictOfRun(
        verdict=(
            ("helped, at a price" if harms else "helped")
            if helped
            else ("no benefit: keep the standard model" if harms else "no clear change")
        ),
        reason=" ".join(text for text in sentences if text),
        positive=results.classes[1] if len(results.classes) == 2 else None,
        worst_group=worst,
        harms=tuple(harms),
    )


def _not_finished(results: Results) -> str:
    """Say why there is nothing to judge yet, and what to do; "" if there is something."""
    if not results.test.rows:
        return NO_TEST
    if results.change is None:
        return NO_BASELINE
    baseline = results.change.baseline
    models = ((results.method.name, results.converged), (baseline.name, baseline.converged))
    # Under a privacy guarantee it is unknown, and more rounds would have more noise.
    names = [name for name, converged in models if converged is False]
    if not names:
        return ""
    verb = "has" if len(names) == 1 else "have"
    return (
        f"{listed(names)} {verb} not converged: a difference may be due to rounds rather than "
        "methods. Train with more rounds (--rounds)."
    )


def worst_before(results: Results) -> str | None:
    """Return the group that had the highest risk with the baseline; None if nobody can say."""
    groups = [change for change in changes_of(results)[:-1] if change]
    compared = [change for change in groups if change.has_enough_rows]
    measured = sum(risk.rows > 0 for risk in results.risk.by_group)
    if not compared or not has_worst(len(compared), measured):
        return None
    return max(compared, key=lambda change: change.before).group


def _about_worst(results: Results, change: Change) -> str:
    effect = "no clear change"
    if change.is_clear:
        effect = "a clear gain" if change.value < 0 else "a clear loss"
    told = mistakes_text(results, change, " in this group")
    return (
        f"“{change.group}” was worst off with the standard model: {told}, {effect} "
        f"({interval_text(results, change)})."
    )


def _about_harms(results: Results, harms: Sequence[Change], worst: Change | None) -> str:
    """Tell the largest harm, whatever it is, unless it is what the worst-off group's change is."""
    if not harms:
        return "No kind of mistake clearly became more frequent, for any group or overall."
    first, further = harms[0], counted(len(harms) - 1, "further harm")
    more = f" There {'is' if len(harms) == 2 else 'are'} {further}." if len(harms) > 1 else ""
    if first == worst:
        return f"That is the largest harm.{more}"
    return f"Largest harm: {mistakes_text(results, first)} ({interval_text(results, first)}).{more}"


def _about_others(told: Sequence[Change], worst: Change | None) -> str:
    gained = [
        change
        for change in told
        if change.is_clear and change.value < 0 and change is not worst and change.group != EVERYONE
    ]
    return f"{counted(len(gained), 'other group')} clearly gained." if gained else ""


def _worst_now(results: Results, before: str | None) -> str:
    """Name the group that is worst off now, if it is another one."""
    now = worst_of(results)
    return (
        "" if before is None or now is None or now[0] == before else f"“{now[0]}” is worst off now."
    )


def mistakes_text(results: Results, change: Change, where: str | None = None) -> str:
    """Say how many of 1,000 are misclassified, missed or false alarms, after and before."""
    if where is None:
        where = "" if change.group == EVERYONE else f" in “{change.group}”"
    after, before = (_shown(results, change, value) for value in (change.after, change.before))
    if change.kind not in OF_PEOPLE:
        return f"the {measure_of(results, change.kind)}{where} is {after} instead of {before}"
    whom, verb = OF_PEOPLE[change.kind]
    whom = whom.format(results.classes[-1] if results.classes else "")
    return f"of 1,000{where or ' records'}{whom}, {after} {verb} instead of {before}"


def measure_of(results: Results, kind: str) -> str:
    """Name what the numbers of this kind are."""
    if kind in OF_PEOPLE:
        return f"{kind} per 1,000{OF_PEOPLE[kind][0].format(results.classes[-1])}"
    return f"mean {risk_name(results) if kind == RISK else kind}"


def interval_text(results: Results, change: Change) -> str:
    """Format a change with its interval."""
    texts = change_texts(results, change)
    return f"{texts.value}; {interval_name(results.test)} {texts.low} to {texts.high}"


def _shown(results: Results, change: Change, value: float, *, sign: bool = False) -> str:
    """Format a value of this change in people of 1,000, or in the unit of an error."""
    write = signed if sign else number
    metric = next(own for own, kind in KINDS.items() if kind == change.kind)
    most = MANY
    if change.group != EVERYONE:
        most = decimals_told(results.test, metric, results.groups.index(change.group))
    if change.kind not in OF_PEOPLE:
        return write(value, min(most, decimals_of(results, metric)))
    # Decimals that the interval leaves uncertain mean nothing, but an end that is not 0 shows it.
    decimals = 0 if PEOPLE * (change.high - change.low) >= 4.0 else 1
    if change.is_clear:
        nearest = PEOPLE * min(abs(change.low), abs(change.high))
        decimals = max(decimals, math.ceil(-math.log10(2.0 * nearest)))
    return write(PEOPLE * value, min(decimals, most - 3))


def change_texts(results: Results, change: Change) -> ChangeTexts:
    """Format a change; "better" or "worse" is said of a clear one between finished models."""
    before, after = (_shown(results, change, value) for value in (change.before, change.after))
    value, low, high = (
        _shown(results, change, end, sign=True) for end in (change.value, change.low, change.high)
    )
    told = change.is_clear and results.verdict and results.verdict.verdict != NOT_FINISHED
    meaning = ("worse" if change.value > 0 else "better") if told else ""
    return ChangeTexts(before, after, value, low, high, meaning)


def change_cells(results: Results, change: Change | None) -> tuple[str, str, str]:
    """Return the cells of a table: before, after, change with its interval, and what it means."""
    if change is None or not change.has_enough_rows:
        return NOTHING, NOTHING, TOO_FEW
    texts = change_texts(results, change)
    shown = f"{texts.value} ({texts.low} to {texts.high}) {texts.meaning}"
    return texts.before, texts.after, shown.rstrip()


def level_ends(metric: str, level: Interval) -> tuple[float, float, float] | None:
    """Return low end, value and high end as mistakes of 1,000, or as they are; None without any."""
    if level.value is None or level.low is None or level.high is None:
        return None
    if metric != ACCURACY:
        return level.low, level.value, level.high
    return PEOPLE * (1.0 - level.high), PEOPLE * (1.0 - level.value), PEOPLE * (1.0 - level.low)


def level_cell(results: Results, metric: str, level: Interval, group: str) -> str:
    """Return a value with its interval as mistakes of 1,000, or as it is."""
    most, ends = MANY, level_ends(metric, level)
    if group != EVERYONE:
        most = decimals_told(results.test, metric, results.groups.index(group))
    if metric != ACCURACY or ends is None:
        return estimate(level, min(most, decimals_of(results, metric)))
    low, value, high = ends
    return estimate(Interval(value=value, low=low, high=high), min(0, most - 3))
