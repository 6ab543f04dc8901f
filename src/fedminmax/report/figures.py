"""What all figures share: no display, colours for everyone, files that say the same each time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fedminmax.core.files import written_beside

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Colours that people who see few of them can tell apart (Okabe and Ito).
METHOD_COLOURS = {
    "AFL": "#E69F00",
    "AFLFast": "#D55E00",
    "FedAvg": "#56B4E9",
    "FedAvgFast": "#0072B2",
    "FedMinMax": "#009E73",
    "FedMinMaxFast": "#CC79A7",
}
SETTING_LINES = {"ESG": "-", "SSG": "--", "PSG": ":", "centralized": "-."}


@contextmanager
def new_figure(width: float, height: float) -> Iterator["Figure"]:
    """Make a figure that no window and no global state knows of."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # Without a salt the SVG's identifiers would differ from one drawing to the next.
    with mpl.rc_context({"svg.hashsalt": "fedminmax"}):
        yield Figure(figsize=(width, height), layout="constrained")


def figure_paths(stem: Path) -> list[Path]:
    """Return the files of a figure: PNG and SVG."""
    return [stem.with_suffix(suffix) for suffix in (".png", ".svg")]


def save_figure(figure: "Figure", stem: Path, creator: str | None = None) -> list[Path]:
    """Write the figure as PNG and SVG; ``creator`` is noted in both."""
    notes: dict[str, dict[str, str | None]] = {
        ".png": {"Software": creator},
        # Without a date the same figure is the same file.
        ".svg": {"Date": None} | ({"Creator": creator} if creator else {}),
    }
    paths = figure_paths(stem)
    for path in paths:
        with written_beside(path) as beside:
            figure.savefig(beside, format=path.suffix[1:], dpi=150, metadata=notes[path.suffix])
    return paths
