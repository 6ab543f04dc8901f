"""Figures for papers: each as PNG and SVG, with words drawn so that no font is missing."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedminmax.core.errors import InputError
from fedminmax.report.figures import figure_paths, save_figure
from fedminmax.report.html_figure import ReportFigure
from fedminmax.report.html_report import GENERATOR
from fedminmax.report.html_style import styled_figure

# Tell our own figures from a user's other files, as they stand in the files.
MARKS = {
    ".png": f"Software\0{GENERATOR}".encode(),
    ".svg": f"<dc:title>{GENERATOR}</dc:title>".encode(),
}


@dataclass(frozen=True)
class Exported:
    """The files, and whether some signs of names could not be drawn."""

    paths: tuple[Path, ...]
    lacks_signs: bool


def check_figures(figures: Sequence[ReportFigure], folder: Path, *, force: bool) -> None:
    """Replace nothing without a word, and never what is no figure of ours."""
    for one in figures:
        for path in figure_paths(folder / one.name):
            if path.is_dir() or (path.exists() and MARKS[path.suffix] not in path.read_bytes()):
                raise InputError(
                    f"{path} is there and is no figure of a report; move it, or give another "
                    "folder with --figures"
                )
            if path.exists() and not force:
                raise InputError(
                    f"{path} is already there; give another folder with --figures, or --force to "
                    "replace it"
                )


def export_figures(figures: Sequence[ReportFigure], folder: Path) -> Exported:
    """Write each figure under its name."""
    paths: list[Path] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for one in figures:
            with styled_figure(one.width, one.height, as_text=False) as figure:
                one.draw(figure)
                paths += save_figure(figure, folder / one.name, GENERATOR)
    missing = [warning for warning in caught if "missing from font" in str(warning.message)]
    for warning in caught:
        if warning not in missing:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
    return Exported(tuple(paths), bool(missing))
