"""`fedminmax report`: from run folders to one page, and to figures for a paper."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from fedminmax.cli.options import Commands, add_command, check_new_file, check_parents
from fedminmax.core.errors import InputError

REPORT_FILE = Path("report.html")
# Documents that others ask for, and their files.
DOCUMENTS = {
    "chai": Path("model_card.xml"),
    "annex-iv": Path("annex_iv.md"),
    "ll144": Path("impact_ratios.md"),
}


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "report",
        write_report,
        short="write one HTML page about finished runs",
        text="Write one HTML page about the run folders of 'fedminmax train': the verdict, what "
        "changed for whom and how certain that is, with "
        "figures, their numbers and all settings. The page needs no network.",
        example="report runs/clinic --out clinic.html --figures figures",
    )
    add = parser.add_argument
    add("runs", nargs="+", type=Path, metavar="RUN", help="a run folder; several are compared")
    add("--out", type=Path, default=REPORT_FILE, metavar="FILE", help=f"({REPORT_FILE})")
    add("--figures", type=Path, metavar="FOLDER", help="also write each figure as PNG and SVG")
    add(
        "--summary",
        type=Path,
        metavar="FILE",
        help="also write one page for a board, which prints on one sheet; for one RUN",
    )
    add(
        "--format",
        choices=("html", *DOCUMENTS),
        default="html",
        help="instead of the page, of one RUN: CHAI's model card as XML, a skeleton of the EU AI "
        "Act's Annex IV, or impact ratios as in New York's Local Law 144",
    )
    add("--force", action="store_true", help="replace an earlier report and its figures")


def write_report(options: argparse.Namespace) -> None:
    """Write the page and, if requested, a summary and the figures; print where they are."""
    if options.format != "html":
        _write_document(options)
        return
    from fedminmax import __version__
    from fedminmax.core.files import write_text
    from fedminmax.core.text import counted
    from fedminmax.report.page import GENERATOR, build_report, render_report
    from fedminmax.report.read_run import read_runs
    from fedminmax.report.style import check_figures, export_figures
    from fedminmax.report.summary import render_summary

    out, figures, summary, force = options.out, options.figures, options.summary, options.force
    _check_out(out, "--out", force=force)
    if summary is not None:
        _check_summary(summary, out, options.runs, force=force)
    if figures is not None:
        _check_folder(figures)
    runs = read_runs(options.runs)
    report = build_report(runs)
    if figures is not None:
        check_figures(report.figures, figures, GENERATOR, force=force)
    write_text(out, render_report(report, __version__))
    for part in report.parts:
        found = part.found
        verdict = f"{found.headline} {found.verdict.reason}" if found.verdict else ""
        for paragraph in (verdict, found.small_groups):
            if paragraph:
                print(paragraph)
    print(f"Report: {out}")
    if summary is not None:
        write_text(summary, render_summary(runs[0], __version__))
        print(f"Summary: {summary}")
    if figures is not None:
        exported = export_figures(report.figures, figures, GENERATOR)
        print(f"Figures: {counted(len(exported.paths), 'file')} in {figures}")
        if exported.lacks_glyphs:
            print("Some characters are not in matplotlib's font and show as boxes in the figures.")


def _write_document(options: argparse.Namespace) -> None:
    """Write one of the documents; print how many questions it leaves open."""
    from fedminmax.core.files import write_text
    from fedminmax.core.text import counted
    from fedminmax.report.annex_iv import annex_iv
    from fedminmax.report.chai import chai_card
    from fedminmax.report.documents import OPEN, Known
    from fedminmax.report.impact_ratios import impact_ratio_tables
    from fedminmax.report.read_run import read_run

    if len(options.runs) > 1:
        raise InputError(f"--format {options.format} is about one run; write one for each")
    if options.summary is not None or options.figures is not None:
        raise InputError(f"--format {options.format} has no --summary and no --figures")
    out = DOCUMENTS[options.format] if options.out == REPORT_FILE else options.out
    check_new_file(out, "--out", force=options.force)
    write = {"chai": chai_card, "annex-iv": annex_iv, "ll144": impact_ratio_tables}
    text = write[options.format](Known(read_run(options.runs[0])))
    write_text(out, text)
    print(f"{out}: {counted(text.count(f'{OPEN}:'), 'open question')} for you to answer")


def _check_out(out: Path, option: str, *, force: bool) -> None:
    """Refuse to replace a file without --force, and any file that is not one of our reports."""
    from fedminmax.report.page import is_report

    if out.is_dir():
        raise InputError(
            f"{out} is a folder; give a file such as {out / 'report.html'} with {option}"
        )
    if out.exists() and not is_report(out.read_text(encoding="utf-8", errors="replace")):
        raise InputError(f"{out} exists and is not a report; give another file with {option}")
    check_new_file(out, option, force=force)


def _check_summary(summary: Path, out: Path, folders: Sequence[Path], *, force: bool) -> None:
    if len(folders) > 1:
        raise InputError(
            f"--summary is about one run, and {len(folders)} are given; write one for each"
        )
    if summary.resolve() == out.resolve():
        raise InputError(f"{summary} is also the report; give another file with --summary")
    _check_out(summary, "--summary", force=force)


def _check_folder(figures: Path) -> None:
    check_parents(figures, "--figures")
    if figures.exists() and not figures.is_dir():
        raise InputError(f"{figures} is a file; give a folder with --figures")
