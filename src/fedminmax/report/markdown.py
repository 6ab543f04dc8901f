r"""Tables and words in Markdown; words of the user's tables are shown as they are.

Every name may be anything that a CSV cell can hold. A backslash before a sign that Markdown would
read (CommonMark 0.31, section 2.4, and GitHub's tables and links) leaves the sign itself.
"""

import re
from collections.abc import Sequence

# Signs that always mean something, and those that do in some places: emphasis unless spaces stand
# around it or letters around an underscore, entities, addresses.
ALWAYS = r"[\\`\[\]<>|~$#@]"
IN_PLACES = r"(?<=\S)\*|\*(?=\S)|(?<!\w)_|_(?!\w)|&(?=[#\w])|:(?=//)|(?<=www)\."
SPECIAL = re.compile(f"{ALWAYS}|{IN_PLACES}")
# What begins a list, a rule or a heading's underline at the start of a line.
START = re.compile(r"^([-+*=]|[0-9]+[.)](?=\s|$))")


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
