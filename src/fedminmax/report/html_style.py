"""What the report's figures look like: told apart by colour, by pattern and by marker.

Colours are those of Okabe and Ito (Color Universal Design, 2008) without black, which is the ink,
and yellow, which is lost on white.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedminmax.report.figures import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.typing import RcKeyType

BLUE, VERMILLION, GREEN = "#0072B2", "#D55E00", "#009E73"
PURPLE, ORANGE, SKY = "#CC79A7", "#E69F00", "#56B4E9"
COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY)
DASHES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
HATCH = "////"

# Not pure black, white or grey, so that the page can find them and put its own in their place.
INK, RULE, PAPER = "#1b1d22", "#c9ccd3", "#fefefe"
# On white and on black alike.
FAINT = "#8a8f9a"
MOST_SERIES = 8
LARGE = 10_000.0


@dataclass(frozen=True)
class SeriesStyle:
    """What one line or point looks like."""

    colour: str
    dash: str
    marker: str


def series_style(number: int) -> SeriesStyle:
    """Return the style of the first, second, ... series."""
    return SeriesStyle(
        COLOURS[number % len(COLOURS)],
        DASHES[number % len(DASHES)],
        MARKERS[number % len(MARKERS)],
    )


@contextmanager
def styled_figure(width: float, height: float, *, as_text: bool) -> Iterator["Figure"]:
    """Make a figure in the report's style, to be saved within the block.

    ``as_text`` leaves words as words, for a browser to set; otherwise they are drawn.
    """
    import matplotlib as mpl

    settings: dict[RcKeyType, Any] = {
        "svg.fonttype": "none" if as_text else "path",
        # Names of groups are the user's: a dollar sign in them is a dollar sign.
        "text.parse_math": False,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "hatch.color": INK,
        "axes.facecolor": PAPER,
        "figure.facecolor": PAPER,
        "grid.color": RULE,
        "font.size": 9.5,
        "axes.titlesize": 10.5,
        "axes.titlelocation": "left",
        "axes.titleweight": "bold",
        "hatch.linewidth": 0.7,
    }
    with mpl.rc_context(settings), new_figure(width, height) as figure:
        yield figure


@contextmanager
def without_missing_signs() -> Iterator[None]:
    """Draw for a browser, which has the signs that matplotlib's own font lacks."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def plain_axes(axes: "Axes", grid: str) -> None:
    """Leave a grid in one direction and the two axes that are read."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, axis="x" if grid == "x" else "y", linewidth=0.7)
    axes.set_axisbelow(True)


def readable_numbers(axis: "Axis", largest: float) -> None:
    """Write large numbers as 20 k or 3 M, not as a power of ten in a corner."""
    from matplotlib.ticker import EngFormatter

    if largest >= LARGE:
        axis.set_major_formatter(EngFormatter())
