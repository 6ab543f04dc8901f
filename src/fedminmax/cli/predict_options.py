"""The words of `fedminmax predict`."""

import argparse
from pathlib import Path
from typing import Any

from fedminmax.cli.format_options import add_format_options, format_changes
from fedminmax.cli.output_files import FORCE

DEFAULT_OUT = Path("predictions.csv")


def add_to(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add `predict` to the command line."""
    parser = commands.add_parser(
        "predict",
        help="predictions of a trained model for new rows",
        description="Predict the rows of a file, in their order. It needs the features' columns "
        "alone: no target, no protected column that is no feature.",
        epilog="example: fedminmax predict runs/fedminmax new.csv --out new_predictions.csv",
    )
    add = parser.add_argument
    add("folder", type=Path, metavar="RUN", help="a run folder of 'fedminmax train'")
    add("file", type=Path, metavar="FILE", help="CSV or Parquet")
    add("--out", type=Path, default=DEFAULT_OUT, metavar="FILE", help=f"({DEFAULT_OUT})")
    add("--force", action="store_true", help=FORCE)
    add_format_options(parser, "as the configuration of the run says")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> None:
    from fedminmax.cli.predict import predict

    changes = format_changes(options)
    predict(options.folder, options.file, options.out, changes, force=options.force)
