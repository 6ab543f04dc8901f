"""Numbers, counts, durations, lists and tables as text for people.

``is_whole`` and ``is_finite`` decide what counts as a number where users give one: Python's own
numbers and numpy's, but no truth values.

Names from the user's tables appear in Markdown as they are, and a name may be anything that a CSV
cell can hold. So characters that Markdown would interpret (CommonMark 0.31, section 2.4, and
GitHub's tables and links) get a backslash, which leaves the character itself.
"""

import math
import re
from collections.abc import Sequence
from numbers import Integral, Real

# Signs that always mean something, and those that do in some places: emphasis unless spaces stand
# around it or letters around an underscore, entities, addresses.
ALWAYS = r"[\\`\[\]<>|~$#@]"
IN_PLACES = r"(?<=\S)\*|\*(?=\S)|(?<!\w)_|_(?!\w)|&(?=[#\w])|:(?=//)|(?<=www)\."
SPECIAL = re.compile(f"{ALWAYS}|{IN_PLACES}")
# What begins a list, a rule or a heading's underline at the start of a line.
START = re.compile(r"^([-+*=]|[0-9]+[.)](?=\s|$))")


def counted(amount: int, one: str, many: str | None = None) -> str:
    """Say a number of things; ``many`` is for words that do not just end in an s.

    >>> counted(1, "row"), counted(2000, "row")
    ('1 row', '2,000 rows')
    >>> counted(1, "row has", "rows have"), counted(2, "row has", "rows have")
    ('1 row has', '2 rows have')
    """
    return f"{amount:,} {one if amount == 1 else many or one + 's'}"


def is_whole(value: object, least: int) -> bool:
    """Tell whether a value is a whole number of at least ``least``.

    >>> is_whole(3, 1), is_whole(3.0, 1), is_whole(True, 1), is_whole("3", 1)
    (True, False, False, False)
    """
    return not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= least


def is_finite(value: object) -> bool:
    """Tell whether a value is a finite number.

    >>> is_finite(0.5), is_finite(math.nan), is_finite("0.5"), is_finite(None)
    (True, False, False, False)
    """
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)


def in_words(value: object) -> str:
    """Return a value as it is told in an error: numbers short, and texts in quotes."""
    return f"{value:g}" if isinstance(value, float) else repr(value)


def duration_text(seconds: float) -> str:
    """Say a time in its two largest units.

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
    r"""Return words that Markdown shows as they are, on one line.

    >>> print(markdown_text("a|b <i>"), markdown_text("1. x"), markdown_text("hours_per_week"))
    a\|b \<i\> 1\. x hours_per_week
    """
    words = " ".join(text.split())
    line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in words)
    line = SPECIAL.sub(lambda found: f"\\{found[0]}", line)
    return START.sub(lambda found: f"{found[0][:-1]}\\{found[0][-1]}", line)


def markdown_table(headers: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """Return a table of plain words without a final newline.

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
    """Say some names.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)
