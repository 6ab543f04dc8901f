"""How every page writes numbers, intervals, shares and sizes, and names groups and metrics.

A page that formats a number by itself would sooner or later contradict another one.
"""

import math
from collections.abc import Sequence

from fedminmax.core.text import listed
from fedminmax.findings.records import RISK, Interval, Measured, Results
from fedminmax.metrics.by_group import AUROC
from fedminmax.metrics.row_scores import FALSE_ALARMS, MISSED

MINUS = "\N{MINUS SIGN}"
PLUS_MINUS = "\N{PLUS-MINUS SIGN}"
NOTHING = "\N{EN DASH}"
NOT_STATED = "not stated; set it in the section [report] of the configuration"
TOO_FEW = "too few records to say"
# How many names a sentence lists; the others are counted.
MAX_NAMED = 6
UNITS = ("bytes", "kB", "MB", "GB", "TB")
LOSS_NAMES = {
    "brier": "Brier score",
    "cross_entropy": "cross-entropy",
    "squared_error": "squared error",
}
# The loss that test results report for each task, whatever training minimised.
REPORTED = {"classification": "brier", "regression": "squared_error"}
MEANINGS = {
    "classification": "how far the predicted probabilities are from the true outcomes, on average "
    "over records: 0 if the model is always certain and right, 2 if always certain and wrong",
    "regression": "the squared difference between prediction and truth, on average over records, "
    "in the target's unit squared: large errors count more than small ones",
}
OF_A_CLASS = ("selection_rate", FALSE_ALARMS, MISSED, "calibration", AUROC)


def risk_name(results: Results) -> str:
    """Name the risk on test records."""
    return LOSS_NAMES[REPORTED[results.task]]


def metric_name(metric: str, results: Results) -> str:
    """Name a metric; rates and calibration name the class that they are about, the second."""
    if metric == RISK:
        return risk_name(results)
    name = "AUROC" if metric == AUROC else metric.replace("_", " ")
    if metric in OF_A_CLASS and len(results.classes) == 2:
        return f"{name} of “{results.classes[1]}”"
    return name


def decimals_of(results: Results, metric: str = RISK, test: Measured | None = None) -> int:
    """How many decimals this metric is shown with; below 0, it is rounded to tens or hundreds.

    A Brier score or a rate has three; an error has three significant figures of its largest mean.
    """
    shown = (test or results.test).metrics[metric]
    largest = max(abs(one.value or 0.0) for one in (shown.overall, *shown.by_group))
    return 3 if results.task == "classification" else three_figures(largest)


def three_figures(largest: float) -> int:
    """Return how many decimals show three figures of the largest value."""
    return min(8, 2 - math.floor(math.log10(largest))) if largest else 3


def number(value: float | None, decimals: int) -> str:
    """Format a number.

    >>> number(1234.5678, 1), number(1234.5678, -2), number(-0.0001, 3)
    ('1,234.6', '1,200', '0.000')
    >>> number(-0.25, 2) == f"{MINUS}0.25"
    True
    """
    if value is None:
        return NOTHING
    text = f"{round(value, decimals):,.{max(0, decimals)}f}"
    # A change that rounds to 0 has no sign.
    if float(text.replace(",", "")) == 0.0:
        text = text.removeprefix("-")
    return text.replace("-", MINUS)


def signed(value: float, decimals: int) -> str:
    """Format a change: with its sign, unless it rounds to 0.

    >>> signed(4.6, 0), signed(0.2, 0), signed(-4.6, 0) == f"{MINUS}5"
    ('+5', '0', True)
    """
    text = number(value, decimals)
    return f"+{text}" if value > 0 and float(text.replace(",", "")) else text


def span(low: float | None, high: float | None, decimals: int) -> str:
    """Format an interval."""
    return f"{number(low, decimals)} to {number(high, decimals)}"


def estimate(interval: Interval, decimals: int) -> str:
    """Format a value with its interval.

    >>> estimate(Interval(value=0.25, low=0.2, high=0.31), 3)
    '0.250 (0.200 to 0.310)'
    >>> estimate(Interval(value=7.5, low=None, high=None), 1)
    '7.5 (no interval)'
    """
    if interval.value is None:
        return NOTHING
    if interval.low is None or interval.high is None:
        return f"{number(interval.value, decimals)} (no interval)"
    return f"{number(interval.value, decimals)} ({span(interval.low, interval.high, decimals)})"


def interval_name(test: Measured) -> str:
    """Name the intervals of these results."""
    return f"{100 * test.confidence:g}% interval"


def size_text(size: float) -> str:
    """Format a number of bytes.

    >>> size_text(736), size_text(1_234_567)
    ('736 bytes', '1.23 MB')
    """
    unit = 0
    while size >= 1000 and unit < len(UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.3g} {UNITS[unit]}"


def named(names: Sequence[str]) -> str:
    """List names in quotation marks, and count those that are too many.

    >>> named(["a", "b"]), named("abcdefgh")
    ('“a” and “b”', '“a”, “b”, “c”, “d”, “e”, “f” and 2 more')
    """
    shown = [f"“{name}”" for name in names[:MAX_NAMED]]
    if len(names) > MAX_NAMED:
        shown.append(f"{len(names) - MAX_NAMED:,} more")
    return listed(shown)


def capitalised(text: str) -> str:
    """Return a text that begins with a capital letter, and leave the rest as it is."""
    return f"{text[:1].upper()}{text[1:]}"
