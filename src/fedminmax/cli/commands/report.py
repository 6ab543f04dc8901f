"""`fedminmax report`: from run folders to one page, and to figures for a paper."""

from collections.abc import Sequence
from pathlib import Path

from fedminmax import __version__
from fedminmax.cli.arguments.types import check_new_file, check_parents
from fedminmax.core.errors import InputError
from fedminmax.core.files import write_text
from fedminmax.core.text import counted
from fedminmax.report.page import (
    build_report,
    check_figures,
    export_figures,
    is_report,
    render_report,
)
from fedminmax.report.read_run import read_runs


def write_report(folders: Sequence[Path], out: Path, figures: Path | None, *, force: bool) -> None:
    """Write the page and, if requested, the figures; print where they are."""
    _check_out(out, force=force)
    if figures is not None:
        _check_folder(figures)
    report = build_report(read_runs(folders))
    if figures is not None:
        check_figures(report.figures, figures, force=force)
    write_text(out, render_report(report, __version__))
    for part in report.parts:
        for paragraph in (part.people, part.story, part.small_groups):
            if paragraph:
                print(paragraph)
    print(f"Report: {out}")
    if figures is not None:
        exported = export_figures(report.figures, figures)
        print(f"Figures: {counted(len(exported.paths), 'file')} in {figures}")
        if exported.lacks_glyphs:
            print("Some characters are not in matplotlib's font and show as boxes in the figures.")


def _check_out(out: Path, *, force: bool) -> None:
    """Refuse to replace a file without --force, and any file that is not one of our reports."""
    if out.is_dir():
        raise InputError(f"{out} is a folder; give a file such as {out / 'report.html'} with --out")
    if out.exists() and not is_report(out.read_text(encoding="utf-8", errors="replace")):
        raise InputError(f"{out} exists and is not a report; give another file with --out")
    check_new_file(out, "--out", force=force)


def _check_folder(figures: Path) -> None:
    check_parents(figures, "--figures")
    if figures.exists() and not figures.is_dir():
        raise InputError(f"{figures} is a file; give a folder with --figures")
