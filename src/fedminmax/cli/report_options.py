"""The words of `fedminmax report`."""

import argparse
from pathlib import Path
from typing import Any

DEFAULT_OUT = Path("report.html")


def add_to(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add `report` to the command line."""
    parser = commands.add_parser(
        "report",
        help="write one HTML page about finished runs",
        description="Write one HTML page about the run folders that 'fedminmax train' left: who "
        "was worst off, what it gained, who paid for it and how sure that is, with figures, "
        "their numbers and all settings. The page needs no network.",
        epilog="example: fedminmax report runs/clinic --out clinic.html --figures figures",
    )
    add = parser.add_argument
    add("runs", nargs="+", type=Path, metavar="RUN", help="a run folder; several are compared")
    add("--out", type=Path, default=DEFAULT_OUT, metavar="FILE", help=f"({DEFAULT_OUT})")
    add("--figures", type=Path, metavar="FOLDER", help="write each figure here as PNG and SVG too")
    add("--force", action="store_true", help="replace an earlier report and its figures")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> None:
    from fedminmax.cli.write_report import write_report

    write_report(options.runs, options.out, options.figures, force=options.force)
