"""What all figures share: no display, colours for everyone, files that say the same each time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fedminmax.core.files import written_beside

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Colours that people who see few of them can tell apart (Okabe and Ito).
METHOD_COLOURS = {"AFL": "#E69F00", "FedAvg": "#56B4E9", "FedMinMax": "#009E73"}
SETTING_LINES = {"ESG": "-", "SSG": "--", "PSG": ":", "centralized": "-."}


@contextmanager
def new_figure(width: float, height: float) -> Iterator["Figure"]:
    """Make a figure that no window and no global state knows of."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # Without a salt the SVG's identifiers would differ from one drawing to the next.
    with mpl.rc_context({"svg.hashsalt": "fedminmax"}):
        yield Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: "Figure", stem: Path) -> list[Path]:
    """Write the figure as PNG and SVG."""
    dates: dict[str, dict[str, str | None]] = {".png": {"Software": None}, ".svg": {"Date": None}}
    paths = [stem.with_suffix(suffix) for suffix in dates]
    for path in paths:
        with written_beside(path) as beside:
            figure.savefig(beside, format=path.suffix[1:], dpi=150, metadata=dates[path.suffix])
    return paths
