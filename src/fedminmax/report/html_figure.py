"""A figure of the report: how it is drawn, what it says in words, and its numbers as tables."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Inches: what fits on a page of 400 pixels.
NARROW_WIDTH = 3.7


@dataclass(frozen=True)
class Table:
    """A table of texts; the first column names its lines."""

    caption: str
    headers: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class ReportFigure:
    """One figure.

    ``name`` is its identifier on the page and in file names, ``title`` and ``description`` are what
    a screen reader says instead of showing it, ``caption`` is what everyone reads below it.
    """

    name: str
    title: str
    description: str
    caption: str
    width: float
    height: float
    narrow_height: float
    draw: Callable[["Figure"], None]
    tables: tuple[Table, ...]

    @property
    def narrow(self) -> "ReportFigure":
        """The same figure for a telephone, whose words are as large as those beside it."""
        return replace(
            self, name=f"{self.name}-narrow", width=NARROW_WIDTH, height=self.narrow_height
        )


def is_narrow(figure: "Figure") -> bool:
    """Whether this is the version for a telephone."""
    return float(figure.get_figwidth()) <= NARROW_WIDTH
