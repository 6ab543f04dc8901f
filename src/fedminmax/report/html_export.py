"""Figures for papers: each as PNG and SVG, with words drawn so that no font is missing."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedminmax.report.figures import save_figure
from fedminmax.report.html_figure import ReportFigure
from fedminmax.report.html_style import styled_figure


@dataclass(frozen=True)
class Exported:
    """The files, and whether some signs of names could not be drawn."""

    paths: tuple[Path, ...]
    lacks_signs: bool


def export_figures(figures: Sequence[ReportFigure], folder: Path) -> Exported:
    """Write each figure under its name."""
    paths: list[Path] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for one in figures:
            with styled_figure(one.width, one.height, as_text=False) as figure:
                one.draw(figure)
                paths += save_figure(figure, folder / one.name)
    missing = [warning for warning in caught if "missing from font" in str(warning.message)]
    for warning in caught:
        if warning not in missing:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
    return Exported(tuple(paths), bool(missing))
