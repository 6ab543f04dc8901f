"""The words of `fedminmax export`."""

import argparse
from pathlib import Path
from typing import Any

from fedminmax.cli.output_files import FORCE, check_new_file


def add_to(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add `export` to the command line."""
    parser = commands.add_parser(
        "export",
        help="a trained model for other programs (ONNX)",
        description="Write a trained model as ONNX, from encoded features to probabilities or "
        "quantities; names of features and classes are in its metadata.",
        epilog="example: fedminmax export runs/fedminmax --onnx model.onnx",
    )
    add = parser.add_argument
    add("folder", type=Path, metavar="RUN", help="a run folder of 'fedminmax train'")
    add("--onnx", type=Path, required=True, metavar="FILE", help="the file to write")
    add("--force", action="store_true", help=FORCE)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> None:
    from fedminmax.report.model_file import load_model
    from fedminmax.report.onnx_file import write_onnx

    check_new_file(options.onnx, "--onnx", force=options.force)
    saved = load_model(options.folder)
    write_onnx(options.onnx, saved)
    print(f"{options.onnx}: {len(saved.encoding.names)} encoded features")
