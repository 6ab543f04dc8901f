"""Tables in Markdown."""

from collections.abc import Sequence


def markdown_table(headers: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """Return a table without a final newline.

    >>> print(markdown_table(("a", "b"), [("1", "2")]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = ["| " + " | ".join(headers) + " |", "|" + "---|" * len(headers)]
    return "\n".join([*lines, *("| " + " | ".join(line) + " |" for line in cells)])
