"""What the report's figures share: style, description, and output as files or inline SVG.

Series differ by colour, pattern and marker. Colours of groups are those of Okabe and Ito (Color
Universal Design, 2008) without black, which is the ink, and yellow, which is hard to see on white.
Drawing needs no display, and the same figure always gives the same file. A figure comes with a text
description and its numbers as tables. As SVG inside the page it has a name, its own identifiers and
the page's colours.
"""

import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, replace
from html import escape
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from fedminmax.core.errors import InputError
from fedminmax.core.files import atomic_write
from fedminmax.findings.tables import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.typing import RcKeyType

# One colour for each model, everywhere: the standard one is grey. What is better or worse has two
# more, and groups have those that people with colour vision deficiency can distinguish (Okabe and
# Ito), in the order of their records.
STANDARD, MINIMAX = "#6b7280", "#6a3fb5"
TONES = {"worse": "#b3400e", "better": "#0b62a3"}
BLUE, VERMILLION, GREEN = "#0072b2", "#d55e00", "#009e73"
PURPLE, ORANGE, SKY = "#cc79a7", "#e69f00", "#56b4e9"
COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY)
DASHES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
HATCH = "////"
# Not pure black, white or grey, so that the page can find and replace them.
INK, RULE, PAPER = "#1b1d22", "#c9ccd3", "#fefefe"
# Readable on white and on black.
FAINT = "#8a8f9a"
MAX_SERIES = 8
LARGE = 10_000.0
# In inches: fits on a page of 400 pixels.
NARROW_WIDTH = 3.7
# Text in an SVG has no bare angle brackets, so this finds tags and nothing else.
TAG = re.compile(r"<[a-zA-Z/][^<>]*>")
IDENTIFIER = re.compile(r'(\bid="|url\(#|href="#)')
PAGE_COLOURS = {
    INK: "var(--ink)",
    RULE: "var(--rule)",
    PAPER: "var(--paper)",
    STANDARD: "var(--standard)",
    MINIMAX: "var(--minimax)",
    TONES["worse"]: "var(--worse)",
    TONES["better"]: "var(--better)",
    **{colour: f"var(--group-{place})" for place, colour in enumerate(COLOURS, 1)},
}
WHERE_NUMBERS_ARE = "All numbers are in the tables that follow."
ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


@contextmanager
def new_figure(width: float, height: float) -> Iterator["Figure"]:
    """Make a figure without a window or global state."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # Without a fixed salt the SVG's identifiers would differ between drawings.
    with mpl.rc_context({"svg.hashsalt": "fedminmax"}):
        yield Figure(figsize=(width, height), layout="constrained")


def figure_paths(stem: Path) -> list[Path]:
    """Return the files of a figure: PNG and SVG."""
    return [stem.with_suffix(suffix) for suffix in (".png", ".svg")]


def save_figure(figure: "Figure", stem: Path, creator: str | None = None) -> list[Path]:
    """Write the figure as PNG and SVG; ``creator`` goes into their metadata."""
    paths = figure_paths(stem)
    for path in paths:
        write_figure(figure, path, creator)
    return paths


def write_figure(figure: "Figure", path: Path, creator: str | None) -> None:
    """Write the figure in the form that the file's name has."""
    notes: dict[str, dict[str, str | None]] = {
        ".png": {"Software": creator},
        # Without a date the same figure is the same file.
        ".svg": {"Date": None} | ({"Creator": creator} if creator else {}),
    }
    with atomic_write(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:], dpi=150, metadata=notes[path.suffix])


@dataclass(frozen=True)
class SeriesStyle:
    """The look of one line or point."""

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

    ``as_text`` keeps text as text, for a browser to render; otherwise it is drawn as outlines.
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
def missing_glyphs_ignored() -> Iterator[None]:
    """Draw for a browser, which has the characters that matplotlib's font lacks."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def plain_axes(axes: "Axes", grid: str) -> None:
    """Keep a grid in one direction and the left and bottom axes."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, axis="x" if grid == "x" else "y", linewidth=0.7)
    axes.set_axisbelow(True)


def readable_numbers(axis: "Axis", largest: float) -> None:
    """Write large numbers as 20 k or 3 M, not as a power of ten in a corner."""
    from matplotlib.ticker import EngFormatter

    if largest >= LARGE:
        axis.set_major_formatter(EngFormatter())


@dataclass(frozen=True)
class ReportFigure:
    """One figure.

    ``name`` is its identifier on the page and in file names, ``title`` and ``description`` are for
    screen readers, ``caption`` is the text below it.
    """

    name: str
    title: str
    _: KW_ONLY
    description: str
    caption: str
    width: float
    height: float
    narrow_height: float
    draw: Callable[["Figure"], None]
    tables: tuple[Table, ...]

    @property
    def narrow(self) -> "ReportFigure":
        """The same figure for a phone, with text as large as that on the page."""
        return replace(
            self, name=f"{self.name}-narrow", width=NARROW_WIDTH, height=self.narrow_height
        )


def is_narrow(figure: "Figure") -> bool:
    """Whether this is the version for a phone."""
    return float(figure.get_figwidth()) <= NARROW_WIDTH


def inline_svg(figure: ReportFigure) -> str:
    """Draw the figure for the page."""
    buffer = io.StringIO()
    with (
        missing_glyphs_ignored(),
        styled_figure(figure.width, figure.height, as_text=True) as canvas,
    ):
        figure.draw(canvas)
        canvas.savefig(buffer, format="svg", metadata=NO_METADATA)
    drawn = buffer.getvalue()
    body = drawn[drawn.index(">", drawn.index("<svg ")) + 1 :]
    # Its style sheet would apply to the whole page.
    body = re.sub(r"<style.*?</style>", "", body, count=1, flags=re.DOTALL)
    return _opening(figure) + TAG.sub(lambda tag: _own(tag[0], figure.name), body)


def _opening(figure: ReportFigure) -> str:
    name, width, height = figure.name, f"{figure.width * 72:g}", f"{figure.height * 72:g}"
    return (
        f'<svg role="img" aria-labelledby="{name}-title" aria-describedby="{name}-desc" '
        'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'width="{width}pt" height="{height}pt" viewBox="0 0 {width} {height}">'
        f'<title id="{name}-title">{escape(figure.title)}</title>'
        f'<desc id="{name}-desc">{escape(figure.description)} {WHERE_NUMBERS_ARE}</desc>'
    )


def _own(tag: str, name: str) -> str:
    tag = IDENTIFIER.sub(rf"\g<1>{name}-", tag)
    for colour, page_colour in PAGE_COLOURS.items():
        tag = tag.replace(colour, page_colour)
    return tag


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
    labels: list[str] = []
    for name in names:
        cut = short(name, width)
        rivals = [other for other in names if other != name and short(other, width) == cut]
        if rivals:
            half = width // 2
            cut = f"{name[:half].rstrip()}{ELLIPSIS}{name[half + 1 - width :].lstrip()}"
        if cut in labels:
            cut = f"{cut} ({labels.count(cut) + 1})"
        labels.append(f" {cut}" if cut.startswith("_") else cut)
    return labels


def check_figures(
    figures: Sequence[ReportFigure], folder: Path, creator: str, *, force: bool
) -> None:
    """Refuse to replace files without ``force``, and files that are not our figures at all."""
    # The bytes that identify our own figures among a user's other files.
    marks = {
        ".png": f"Software\0{creator}".encode(),
        ".svg": f"<dc:title>{creator}</dc:title>".encode(),
    }
    for path in (path for one in figures for path in figure_paths(folder / one.name)):
        if path.is_dir() or (path.exists() and marks[path.suffix] not in path.read_bytes()):
            raise InputError(
                f"{path} exists and is not a figure of a report; move it, or give another folder "
                "with --figures"
            )
        if path.exists() and not force:
            raise InputError(
                f"{path} already exists; give another folder with --figures, or --force to replace "
                "it"
            )


def export_figures(
    figures: Sequence[ReportFigure], folder: Path, creator: str
) -> tuple[list[Path], bool]:
    """Write each figure under its name, with text as outlines, so that no font is missing.

    Return the files, and whether the font lacked some characters of names.
    """
    paths: list[Path] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for one in figures:
            with styled_figure(one.width, one.height, as_text=False) as figure:
                one.draw(figure)
                paths += save_figure(figure, folder / one.name, creator)
    missing = [warning for warning in caught if "missing from font" in str(warning.message)]
    for warning in caught:
        if warning not in missing:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
    return paths, bool(missing)
