"""Tables in Markdown."""

from collections.abc import Sequence


def markdown_cell(text: str) -> str:
    """Keep a name from ending its cell.

    >>> len(markdown_cell("a|b"))
    4
    """
    return text.replace("|", "\\|")


def markdown_table(headers: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """Return a table without a final newline.

    >>> print(markdown_table(("a", "b"), [("1", "2")]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = ["| " + " | ".join(headers) + " |", "|" + "---|" * len(headers)]
    return "\n".join([*lines, *("| " + " | ".join(line) + " |" for line in cells)])
