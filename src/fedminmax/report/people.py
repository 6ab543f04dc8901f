"""The result in people: of 1,000 in a group, how many more or fewer are misclassified.

A person is misclassified if the most probable class is not the true one. For a regression it is how
far predictions are off on average. Both have their own intervals, and a difference within noise is
not reported as one.
"""

from collections.abc import Sequence

from fedminmax.core.text import counted
from fedminmax.findings.records import Interval, Results
from fedminmax.report.read_run import Run
from fedminmax.report.story import Change, all_changes, worst_of
from fedminmax.report.text import decimals_of, interval_name, number, span
from fedminmax.runs.convergence import no_gain_yet

ACCURACY = "accuracy"
ERROR = "absolute_error"
PEOPLE = 1000.0
MISCLASSIFIED = "Misclassified: the class that the model finds most probable is not the true one."


def people(run: Run) -> str:
    """Describe what the run means for the people in the worst-off group, and who pays for it.

    Return "" if that was not measured, or if every group has too few rows.
    """
    results = (run.baseline or run.chosen).results
    worst = worst_of(results)
    metric = ACCURACY if results.task == "classification" else ERROR
    if worst is None or metric not in results.test.metrics:
        return ""
    name = worst[0]
    if run.baseline is None:
        return _alone(results, name, metric)
    changes = [_of_errors(change, metric) for change in all_changes(run, metric)[:-1] if change]
    changes = [change for change in changes if change.has_enough_rows]
    own = next((change for change in changes if change.name == name), None)
    if own is None:
        return ""
    models = (run.chosen.results, run.baseline.results)
    doubt = no_gain_yet(*((one.method.name, one.converged) for one in models))
    if doubt:
        return _no_difference(run, own, metric, doubt)
    others = [change for change in changes if change is not own and change.is_sure]
    return f"{_worst_off(run, own, metric)} {_others(run, others, metric)}"


def _of_errors(change: Change, metric: str) -> Change:
    """Convert a change in accuracy to one in the number misclassified of 1,000."""
    if metric != ACCURACY:
        return change
    before, after = PEOPLE * (1.0 - change.before), PEOPLE * (1.0 - change.after)
    return Change(
        change.name,
        change.rows,
        before=before,
        after=after,
        value=-PEOPLE * change.value,
        low=-PEOPLE * change.high,
        high=-PEOPLE * change.low,
        small=change.small,
    )


def _alone(results: Results, name: str, metric: str) -> str:
    own = results.test.metrics[metric].by_group[results.groups.index(name)]
    if own.value is None or own.low is None or own.high is None:
        return ""
    interval = interval_name(results)
    if metric == ACCURACY:
        errors = Interval(
            value=PEOPLE * (1.0 - own.value),
            low=PEOPLE * (1.0 - own.high),
            high=PEOPLE * (1.0 - own.low),
        )
        return (
            f"Of 1,000 in “{name}”, the worst-off group, about {number(errors.value, 0)} "
            f"are misclassified ({interval} {span(errors.low, errors.high, 0)})."
        )
    decimals = decimals_of(results, ERROR)
    return (
        f"In “{name}”, the worst-off group, predictions are off by "
        f"{number(own.value, decimals)} on average ({interval} "
        f"{span(own.low, own.high, decimals)})."
    )


def _start(own: Change, metric: str) -> str:
    if metric == ACCURACY:
        return f"Of 1,000 in “{own.name}”, the group that was worst off with the baseline,"
    return f"In “{own.name}”, the group that was worst off with the baseline, predictions are off"


def _no_difference(run: Run, own: Change, metric: str, reason: str) -> str:
    """Report both numbers, and why they are not a difference."""
    decimals = _decimals(run, metric, own)
    after, before = number(own.after, decimals), number(own.before, decimals)
    now = f"about {after} are misclassified" if metric == ACCURACY else f"by {after} on average"
    return f"{_start(own, metric)} {now}, compared with {before} with the baseline: {reason}."


def _worst_off(run: Run, own: Change, metric: str) -> str:
    if not own.is_sure:
        rows = counted(own.rows, "test row")
        return _no_difference(run, own, metric, f"on {rows} this difference is within noise")
    decimals, start = _decimals(run, metric, own), _start(own, metric)
    after, before = number(own.after, decimals), number(own.before, decimals)
    size, interval = _size(run, own, decimals)
    if metric == ACCURACY:
        return (
            f"{start} about {size} {_direction(own, 'more', 'fewer')} are misclassified "
            f"({interval}): {after} instead of {before}."
        )
    return (
        f"{start} by {size} {_direction(own, 'more', 'less')} on average ({interval}): {after} "
        f"instead of {before}."
    )


def _others(run: Run, changes: Sequence[Change], metric: str) -> str:
    """Report which other groups fare worse beyond noise, and how many fare better."""
    risen = sorted((c for c in changes if c.value > 0), key=lambda c: c.value, reverse=True)
    fallen = len(changes) - len(risen)
    sentences = []
    if risen:
        most = risen[0]
        size, interval = _size(run, most, _decimals(run, metric, most))
        sentences.append(
            f"Of 1,000 in “{most.name}”, about {size} more are misclassified ({interval})"
            if metric == ACCURACY
            else f"In “{most.name}”, predictions are off by {size} more ({interval})"
        )
        if len(risen) > 1:
            sentences[0] += f", and {counted(len(risen) - 1, 'more group')} also fared worse"
        sentences[0] += "."
    else:
        sentences.append("No other group fares worse beyond noise.")
    if fallen:
        sentences.append(
            f"{counted(fallen, 'other group')} {'fares' if fallen == 1 else 'fare'} better beyond "
            "noise."
        )
    return " ".join(sentences)


def _direction(change: Change, more: str, less: str) -> str:
    return more if change.value > 0 else less


def _size(run: Run, change: Change, decimals: int) -> tuple[str, str]:
    """Format the size of a change, regardless of its direction, and its interval."""
    low, high = sorted((abs(change.low), abs(change.high)))
    name = interval_name(run.chosen.results)
    return number(abs(change.value), decimals), f"{name} {span(low, high, decimals)}"


def _decimals(run: Run, metric: str, change: Change) -> int:
    if metric == ERROR:
        return decimals_of(run.chosen.results, ERROR)
    # A change of less than 2 of 1,000 has a decimal.
    return 0 if abs(change.value) >= 2.0 else 1
