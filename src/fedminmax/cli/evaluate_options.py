"""The words of `fedminmax evaluate`."""

import argparse
from pathlib import Path
from typing import Any

from fedminmax.cli.format_options import add_format_options, format_changes


def add_to(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add `evaluate` to the command line."""
    parser = commands.add_parser(
        "evaluate",
        help="metrics by group of a trained model",
        description="Show a trained model's metrics by group with their intervals: on the rows "
        "that training held out, or on files of your own with target and protected columns.",
        epilog="example: fedminmax evaluate runs/fedminmax new_north.csv",
    )
    add = parser.add_argument
    add("folder", type=Path, metavar="RUN", help="a run folder of 'fedminmax train'")
    add("files", type=Path, nargs="*", metavar="FILE", help="rows to measure on instead")
    add("--json", action="store_true", help="print machine-readable metrics alone on stdout")
    add_format_options(parser, "as the configuration of the run says")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> None:
    from fedminmax.cli.evaluate import evaluate

    evaluate(options.folder, options.files, format_changes(options), as_json=options.json)
