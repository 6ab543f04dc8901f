"""How the report formats numbers and names."""

import math
from collections.abc import Sequence
from textwrap import shorten

from fedminmax.findings.records import RISK, Interval, Results

MINUS = "\N{MINUS SIGN}"
ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
NOTHING = "\N{EN DASH}"


def risk_name(results: Results) -> str:
    """The name of the risk in these results."""
    return "Brier risk" if results.task == "classification" else "squared error"


def risk_meaning(results: Results) -> str:
    """Explain the risk to a reader who does not know it."""
    if results.task == "classification":
        return (
            "how far the predicted probabilities are from the true outcomes, on average over a "
            "group's rows: 0 if the model is always certain and right, 2 if always certain and "
            "wrong"
        )
    return (
        "the squared difference between prediction and truth, on average over a group's rows: "
        "large errors count more than small ones"
    )


def decimals_of(results: Results, metric: str = RISK) -> int:
    """How many decimals this metric is shown with; below 0, it is rounded to tens or hundreds.

    A Brier risk or a rate has three; an error has three significant figures of its largest mean.
    """
    found = results.test.metrics[metric]
    largest = max(abs(one.value or 0.0) for one in (found.overall, *found.by_group))
    if results.task == "classification" or not largest:
        return 3
    return min(8, 2 - math.floor(math.log10(largest)))


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


def span(low: float | None, high: float | None, decimals: int) -> str:
    """Format an interval."""
    return f"{number(low, decimals)} to {number(high, decimals)}"


def estimate(interval: Interval, decimals: int) -> str:
    """Format a value with its interval."""
    if interval.value is None:
        return NOTHING
    if interval.low is None or interval.high is None:
        return f"{number(interval.value, decimals)} (no interval)"
    return f"{number(interval.value, decimals)} ({span(interval.low, interval.high, decimals)})"


def interval_name(results: Results) -> str:
    """Name the intervals in these results."""
    return f"{results.test.confidence:.0%} interval"


def short(name: str, width: int) -> str:
    """Shorten a name that does not fit into a figure; its table has it in full."""
    cut = shorten(name, width, placeholder=ELLIPSIS)
    if cut == ELLIPSIS:
        cut = f"{name[: width - 1]}{ELLIPSIS}"
    # Legends skip labels that start with an underscore.
    return f" {cut}" if cut.startswith("_") else cut


def distinct(names: Sequence[str], width: int) -> list[str]:
    """Shorten names and keep them distinct: cut in the middle, or add a number.

    >>> distinct(["ward of the north, men", "ward of the north, women", "b"], 14)
    ['ward of…h, men', 'ward of…women', 'b']
    """
    found: list[str] = []
    for name in names:
        cut = short(name, width)
        rivals = [other for other in names if other != name and short(other, width) == cut]
        if rivals:
            half = width // 2
            cut = f"{name[:half].rstrip()}{ELLIPSIS}{name[half + 1 - width :].lstrip()}"
        if cut in found:
            cut = f"{cut} ({found.count(cut) + 1})"
        found.append(f" {cut}" if cut.startswith("_") else cut)
    return found
