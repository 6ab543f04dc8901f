"""Numbers, counts, durations, lists and tables as readable text.

``is_whole`` and ``is_finite`` decide what is accepted as a number from users: Python's and numpy's
numbers, but no booleans.

Names from the user's tables appear verbatim in Markdown, and a name may be anything that fits a CSV
cell. So characters that Markdown would interpret (CommonMark 0.31, section 2.4, and GitHub's tables
and links) are escaped with a backslash.

Bounds are true as printed: lower bounds are rounded down, upper bounds and gaps up.
"""

import math
import re
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from difflib import get_close_matches
from numbers import Integral, Real

# Characters that are always special, and those that are special only in some positions: emphasis
# (unless surrounded by spaces, or an underscore by letters), entities and URLs.
ALWAYS = r"[\\`\[\]<>|~$#@]"
IN_PLACES = r"(?<=\S)\*|\*(?=\S)|(?<!\w)_|_(?!\w)|&(?=[#\w])|:(?=//)|(?<=www)\."
SPECIAL = re.compile(f"{ALWAYS}|{IN_PLACES}")
# Starts a list, a rule or a heading's underline at the beginning of a line.
START = re.compile(r"^([-+*=]|[0-9]+[.)](?=\s|$))")

# The most names that a message lists.
MAX_NAMES = 8
MIN_DIGITS, MAX_DIGITS = 4, 9
# Numbers of other sizes are written with an exponent.
MAX_PLACES = 4


def counted(amount: int, one: str, many: str | None = None) -> str:
    """Format a count with its noun; ``many`` is for plurals that do not just end in s.

    >>> counted(1, "row"), counted(2000, "row")
    ('1 row', '2,000 rows')
    >>> counted(1, "row has", "rows have"), counted(2, "row has", "rows have")
    ('1 row has', '2 rows have')
    """
    return f"{amount:,} {one if amount == 1 else many or one + 's'}"


def is_whole(value: object, minimum: int) -> bool:
    """Return whether a value is a whole number of at least ``minimum``.

    >>> is_whole(3, 1), is_whole(3.0, 1), is_whole(True, 1), is_whole("3", 1)
    (True, False, False, False)
    """
    return not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= minimum


def is_finite(value: object) -> bool:
    """Return whether a value is a finite number.

    >>> is_finite(0.5), is_finite(math.nan), is_finite("0.5"), is_finite(None)
    (True, False, False, False)
    """
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)


def format_value(value: object) -> str:
    """Format a value for an error message: numbers short, strings in quotes."""
    return f"{value:g}" if isinstance(value, float) else repr(value)


def duration_text(seconds: float) -> str:
    """Format a duration in its two largest units.

    >>> [duration_text(seconds) for seconds in (0.4, 75, 3600, 90061)]
    ['0 s', '1 min 15 s', '1 h 0 min', '25 h 1 min']
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def markdown_text(text: str) -> str:
    r"""Escape text so that Markdown shows it verbatim, on one line.

    >>> print(markdown_text("a|b <i>"), markdown_text("1. x"), markdown_text("hours_per_week"))
    a\|b \<i\> 1\. x hours_per_week
    """
    joined = " ".join(text.split())
    line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in joined)
    line = SPECIAL.sub(lambda found: f"\\{found[0]}", line)
    return START.sub(lambda found: f"{found[0][:-1]}\\{found[0][-1]}", line)


def markdown_table(headers: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """Return a table of plain text without a final newline.

    >>> print(markdown_table(("a", "b"), [("1", "2")]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = [_line(headers), "|" + "---|" * len(headers)]
    return "\n".join([*lines, *map(_line, cells)])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(markdown_text, cells)) + " |"


def listed(names: Sequence[str]) -> str:
    """Join names to a readable list.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    >>> listed([])
    ''
    """
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def first_few(names: Sequence[str], most: int = MAX_NAMES, noun: str = "more") -> str:
    """Join the first few of many names, and say how many more there are.

    >>> first_few(["a", "b"]), first_few(["a", "b", "c"], 1, "more sites")
    ('a, b', 'a and 2 more sites')
    """
    left = len(names) - most
    return ", ".join(names[:most]) + (f" and {left:,} {noun}" if left > 0 else "")


def quoted(names: Sequence[str]) -> str:
    """Quote names for a message, the first few of many.

    >>> quoted(["a", "b"])
    "'a', 'b'"
    """
    return first_few([f"'{name}'" for name in names])


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """Return a hint if a known name is close to this one, else the known names.

    >>> did_you_mean("tagret", ["target", "seed"])
    "did you mean 'target'?"
    """
    close = get_close_matches(name, known, n=1)
    return f"did you mean '{close[0]}'?" if close else f"there is {quoted(known) or 'nothing'}"


def percent(share: float) -> str:
    """Format a share with three figures, without rounding nearly all to 100%.

    >>> percent(0.25), percent(0.0), percent(0.0004), percent(0.9999)
    ('25%', '0%', '0.04%', 'over 99.9%')
    """
    return "over 99.9%" if 0.999 < share < 1.0 else f"{100 * share:.3g}%"


def lower_text(value: float, digits: int) -> str:
    """Format a lower bound with at most so many digits, not above it.

    >>> lower_text(0.39528149, 6), lower_text(0.45, 4), lower_text(-1.23456, 3)
    ('0.395281', '0.45', '-1.24')
    """
    return _rounded(value, digits, ROUND_FLOOR)


def upper_text(value: float, digits: int) -> str:
    """Format an upper bound or a gap with at most so many digits, not below it.

    >>> upper_text(0.39528109, 6), upper_text(0.45, 4), upper_text(1.01e-8, 1)
    ('0.395282', '0.45', '2e-8')
    """
    return _rounded(value, digits, ROUND_CEILING)


def upper_percent(share: float, digits: int = 2) -> str:
    """Format a share as an upper bound in percent, of next to nothing as 0.0001%.

    >>> upper_percent(0.0123456), upper_percent(2e-9)
    ('1.3%', '0.0001%')
    """
    return f"{upper_text(max(100 * share, 1e-4), digits)}%"


def bounds_text(lower: float, upper: float) -> tuple[str, str]:
    """Format both with as few digits as show their distance, at most twice as large as it is.

    >>> bounds_text(0.4498, 0.45), bounds_text(0.39528100, 0.39528121)
    (('0.4498', '0.45'), ('0.395281', '0.3952813'))
    """
    digits = MIN_DIGITS
    while True:
        below, above = lower_text(lower, digits), upper_text(upper, digits)
        if digits == MAX_DIGITS or float(above) - float(below) <= 2.0 * (upper - lower):
            return below, above
        digits += 1


def _rounded(value: float, digits: int, direction: str) -> str:
    # By its shortest decimal: 0.45 is not rounded up because its double is above it.
    exact = Decimal(repr(float(value)))
    number = Context(prec=digits, rounding=direction).plus(exact).normalize()
    return f"{number:f}" if abs(number.adjusted()) <= MAX_PLACES else f"{number:e}"
