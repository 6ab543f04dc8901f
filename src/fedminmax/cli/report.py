"""`fedminmax report`: from run folders to one page, and to figures for a paper."""

import argparse
import webbrowser
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
        text="Write one HTML page about the run folders of 'fedminmax train': who gains, who loses "
        "and how certain that is, on one screen and one printed page; all else behind closed "
        "questions. The page needs no network, and may be passed on: no count of records below "
        "10, no path. An earlier report is replaced.",
        example="report runs/clinic --open",
    )
    add = parser.add_argument
    add("runs", nargs="+", type=Path, metavar="RUN", help="a run folder; several are compared")
    add(
        "--out",
        type=Path,
        metavar="FILE",
        help=f"(RUN/{REPORT_FILE}; of several runs {REPORT_FILE} in this folder)",
    )
    add("--open", action="store_true", help="show the page in the browser")
    add("--appendix", action="store_true", help="add what only research needs")
    add("--figures", type=Path, metavar="FOLDER", help="also write each figure as PNG and SVG")
    add(
        "--format",
        choices=("html", *DOCUMENTS),
        default="html",
        help="instead of the page, of one RUN: CHAI's model card as XML, a skeleton of the EU AI "
        "Act's Annex IV, or impact ratios as in New York's Local Law 144",
    )
    add("--force", action="store_true", help="replace the figures of an earlier report")


def write_report(options: argparse.Namespace) -> None:
    """Write the page and, if requested, the figures; print where they are."""
    if options.format != "html":
        _write_document(options)
        return
    from fedminmax import __version__
    from fedminmax.core.files import write_text
    from fedminmax.core.text import counted
    from fedminmax.report.page import GENERATOR, build_report, render_report
    from fedminmax.report.read_run import read_runs
    from fedminmax.report.style import check_figures, export_figures

    out, figures = options.out, options.figures
    if out is None:
        out = options.runs[0] / REPORT_FILE if len(options.runs) == 1 else REPORT_FILE
    _check_out(out)
    if figures is not None:
        _check_folder(figures)
    report = build_report(read_runs(options.runs), appendix=options.appendix)
    if figures is not None:
        check_figures(report.figures, figures, GENERATOR, force=options.force)
    write_text(out, render_report(report, __version__))
    print(report.title)
    print(f"Report: {out}")
    if figures is not None:
        paths, lacks_glyphs = export_figures(report.figures, figures, GENERATOR)
        print(f"Figures: {counted(len(paths), 'file')} in {figures}")
        if lacks_glyphs:
            print("Some characters are not in matplotlib's font and show as boxes in the figures.")
    if options.open:
        webbrowser.open(out.resolve().as_uri())


def _write_document(options: argparse.Namespace) -> None:
    """Write one of the documents; print how many questions it leaves open."""
    from fedminmax.core.files import write_text
    from fedminmax.core.text import counted
    from fedminmax.report.documents import OPEN, Known, annex_iv, chai_card, impact_ratio_tables
    from fedminmax.report.read_run import read_run

    if len(options.runs) > 1:
        raise InputError(f"--format {options.format} is about one run; write one for each")
    if options.figures is not None:
        raise InputError(f"--format {options.format} has no --figures")
    out = options.out or DOCUMENTS[options.format]
    check_new_file(out, "--out", force=options.force)
    write = {"chai": chai_card, "annex-iv": annex_iv, "ll144": impact_ratio_tables}
    text = write[options.format](Known(read_run(options.runs[0])))
    write_text(out, text)
    print(f"{out}: {counted(text.count(f'{OPEN}:'), 'open question')} for you to answer")


def _check_out(out: Path) -> None:
    """Refuse to replace a file that is not one of our reports."""
    from fedminmax.report.page import is_report

    if out.is_dir():
        raise InputError(f"{out} is a folder; give a file such as {out / REPORT_FILE} with --out")
    if out.exists() and not is_report(out.read_text(encoding="utf-8", errors="replace")):
        raise InputError(f"{out} exists and is not a report; give another file with --out")
    check_parents(out, "--out")


def _check_folder(figures: Path) -> None:
    check_parents(figures, "--figures")
    if figures.exists() and not figures.is_dir():
        raise InputError(f"{figures} is a file; give a folder with --figures")
