"""`fedminmax export`: a trained model for other programs."""

import argparse
from pathlib import Path

from fedminmax.cli.options import FORCE, Commands, add_command, check_new_file
from fedminmax.core.errors import InputError


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "export",
        export,
        short="a trained model for other programs (ONNX, MLflow)",
        text="Write a trained model as ONNX, from encoded features or raw columns to probabilities "
        "or quantities, with names of features and classes in its metadata; or as an MLflow model, "
        "for 'mlflow models serve'.",
        example="export runs/fedminmax --onnx model.onnx --raw-columns",
    )
    add = parser.add_argument
    add("folder", type=Path, metavar="RUN", help="a run folder of 'fedminmax train'")
    form = parser.add_mutually_exclusive_group(required=True)
    form.add_argument("--onnx", type=Path, metavar="FILE", help="the ONNX file to write")
    form.add_argument(
        "--mlflow-model", type=Path, metavar="FOLDER", help="the MLflow model to write"
    )
    add(
        "--raw-columns",
        action="store_true",
        help="ONNX with the encoding inside: an input for each raw column",
    )
    add("--force", action="store_true", help=FORCE)


def export(options: argparse.Namespace) -> None:
    """Write the model in the form that was asked for."""
    if options.mlflow_model is not None:
        _export_mlflow(options)
        return
    from fedminmax.exports.onnx import write_onnx
    from fedminmax.exports.saved_model import load_model

    raw = options.raw_columns
    check_new_file(options.onnx, "--onnx", force=options.force)
    saved = load_model(options.folder)
    write_onnx(options.onnx, saved, columns=raw)
    inputs = len(saved.encoding.features) if raw else len(saved.encoding.names)
    print(f"{options.onnx}: {inputs} {'columns' if raw else 'encoded features'}")


def _export_mlflow(options: argparse.Namespace) -> None:
    from fedminmax.exports.mlflow_model import model_file_of, write_mlflow

    folder = options.mlflow_model
    if options.raw_columns:
        raise InputError("--raw-columns is for --onnx; an MLflow model always takes raw columns")
    if folder.exists() and not options.force:
        raise InputError(f"{folder} exists; give another --mlflow-model, or --force")
    write_mlflow(folder, model_file_of(options.folder))
    print(f"{folder}: mlflow models serve -m {folder} --env-manager local")
