"""Writes what lists all methods from their cards: a table in docs/methods.md, the names of a room.

usage: python scripts/method_tables.py   (or: make tables)
"""

from pathlib import Path

from fedminmax import methods
from fedminmax.core.parity import Parity
from fedminmax.methods.catalogue import BUILT_IN
from fedminmax.methods.look_ahead import Objective

ROOT = Path(__file__).parents[1]
BEGIN = "<!-- begin: written by scripts/method_tables.py from the methods' cards -->\n"
END = "<!-- end -->\n"


def methods_table() -> str:
    """Return the full table: one line per method."""
    headers = [
        "name",
        "class",
        "paper",
        "optimises",
        "over",
        "a site reveals",
        "sites per round",
    ]
    lines = [
        [
            f"`{card.key}`",
            f"`{card.make.__name__}`",
            card.paper,
            card.optimises,
            card.scope,
            card.reveals,
            "any" if card.works_with_absent else "all",
        ]
        for card in BUILT_IN.values()
    ]
    return _table(headers, lines)


def names_of_the_room() -> str:
    """Return the stub by which ``fedminmax.methods`` offers every method."""
    kinds: list[type] = [Objective, Parity, *(card.make for card in BUILT_IN.values())]
    by_module: dict[str, list[str]] = {}
    for kind in kinds:
        by_module.setdefault(kind.__module__, []).append(kind.__name__)
    imports = [
        f"from {module} import {', '.join(sorted(names, key=_capitals_first))}\n"
        for module, names in sorted(by_module.items())
    ]
    names = sorted((kind.__name__ for kind in kinds), key=_capitals_first)
    listed = "".join(f'    "{name}",\n' for name in names)
    return "".join([*imports, f"\n__all__ = [\n{listed}]\n"])


def _capitals_first(name: str) -> tuple[bool, str]:
    """Sort names as the linter does."""
    return not name.isupper(), name


STUB = Path(methods.__path__[0]) / "__init__.pyi"
PAGE = ROOT / "docs" / "methods.md"


def with_table(text: str, table: str) -> str:
    """Return a page with this table between its marks."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END, 1)
    return before + BEGIN + table + END + after


def _table(headers: list[str], lines: list[list[str]]) -> str:
    rows = [f"| {' | '.join(row)} |\n" for row in (headers, *lines)]
    return "".join([rows[0], "|---" * len(headers), "|\n", *rows[1:]])


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_table(text, methods_table()), encoding="utf-8")
    STUB.write_text(names_of_the_room(), encoding="utf-8")
