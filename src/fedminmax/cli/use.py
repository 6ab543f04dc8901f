"""What is done with a trained model: `fedminmax predict`, `evaluate` and `export`.

They predict the rows of a file, show the metrics by group on held-out rows or on the user's files,
and write the model for other programs.
"""

import argparse
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fedminmax.cli.options import (
    Commands,
    add_command,
    add_format_options,
    add_options,
    check_new_file,
    format_changes,
)
from fedminmax.core.errors import InputError

if TYPE_CHECKING:
    from fedminmax.config.file_format import FileFormat
    from fedminmax.findings.records import Measured, Results

PREDICTIONS_FILE = Path("predictions.csv")


def add_to(commands: Commands) -> None:
    """Add the commands."""
    _add_evaluate(commands)
    _add_predict(commands)
    _add_export(commands)


def _add_predict(commands: Commands) -> None:
    parser = add_command(
        commands,
        "predict",
        predict,
        short="apply a trained model to new records",
        text="Predict the rows of a file, in their order. It needs only the feature columns: no "
        "target, and no sensitive attribute that is not a feature.",
        example="predict runs/fedminmax new.csv --out new_predictions.csv",
    )
    add = parser.add_argument
    add_options(parser, "folder")
    add("file", type=Path, metavar="FILE", help="CSV or Parquet")
    add("--out", type=Path, default=PREDICTIONS_FILE, metavar="FILE", help=f"({PREDICTIONS_FILE})")
    add(
        "--explain",
        action="store_true",
        help="add columns: each row's score, and what every column adds to it (additive models)",
    )
    add_options(parser, "--force")
    add_format_options(parser, "as the configuration of the run says")


def predict(options: argparse.Namespace) -> None:
    """Write row numbers (from 1, without the header), predictions and probabilities."""
    from fedminmax.cli.main import say
    from fedminmax.core.files import atomic_write
    from fedminmax.core.text import counted
    from fedminmax.data.tables.encode import distance_warnings, encode_features
    from fedminmax.data.tables.odd_rows import shown_here
    from fedminmax.data.tables.parse_rows import parse_features
    from fedminmax.exports.effects import explain_codes
    from fedminmax.exports.saved_model import load_model

    file, out = options.file, options.out
    check_new_file(out, "--out", force=options.force)
    if out.exists() and out.samefile(file):
        raise InputError(f"{out} is the file with the rows to predict; give another --out")
    saved = load_model(options.folder)
    file_format, chosen = _format_of(options, saved.format)
    saved = replace(saved, format=file_format)
    table = saved.table(file)
    rows = parse_features(table, saved.encoding.schema)
    for warning in (
        *chosen,
        *shown_here(rows.odd),
        *distance_warnings(rows, saved.encoding, str(file)),
    ):
        say(f"warning: {warning}")
    encoded = encode_features(rows, saved.encoding)
    lines = saved.answer_columns(saved.scores(encoded))
    if options.explain:
        lines = lines.hstack(explain_codes(saved.model, saved.encoding, encoded))
    lines = lines.insert_column(0, table.row_numbers.alias("row"))
    with atomic_write(out) as temporary:
        lines.write_csv(temporary)
    print(
        f"{out}: predictions of '{saved.encoding.schema.target.column}' for "
        f"{counted(rows.count, 'row')}"
    )


def _format_of(
    options: argparse.Namespace, agreed: "FileFormat"
) -> tuple["FileFormat", tuple[str, ...]]:
    """Return the format of the file; a model without its run knows only the common one."""
    from fedminmax.config.file_format import check_format
    from fedminmax.config.read import read_config
    from fedminmax.data.tables.sources import format_of_file
    from fedminmax.runs.folder import CONFIG_FILE

    path, changes = options.folder / CONFIG_FILE, format_changes(options)
    if path.is_file():
        return format_of_file(options.file, read_config(path), changes)
    return check_format(changes.apply(agreed), "the command's"), ()


def _add_export(commands: Commands) -> None:
    parser = add_command(
        commands,
        "export",
        export,
        short="save a trained model for other programs (ONNX, MLflow)",
        text="Write a trained model as ONNX, from encoded features or raw columns to probabilities "
        "or quantities, with names of features and classes in its metadata; or as an MLflow model, "
        "for 'mlflow models serve'.",
        example="export runs/fedminmax --onnx model.onnx --raw-columns",
    )
    add = parser.add_argument
    add_options(parser, "folder", "--force")
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
    from fedminmax.exports.mlflow import model_file_of, write_mlflow

    folder = options.mlflow_model
    if options.raw_columns:
        raise InputError("--raw-columns is for --onnx; an MLflow model always takes raw columns")
    if folder.exists() and not options.force:
        raise InputError(f"{folder} exists; give another --mlflow-model, or --force")
    write_mlflow(folder, model_file_of(options.folder))
    print(f"{folder}: mlflow models serve -m {folder} --env-manager local")


def _add_evaluate(commands: Commands) -> None:
    parser = add_command(
        commands,
        "evaluate",
        evaluate,
        short="show every measure of a trained model by group",
        text="Show a trained model's metrics by group with their intervals: on the rows held out "
        "from training, or on your own files with target and sensitive attributes.",
        example="evaluate runs/fedminmax new_north.csv",
    )
    add = parser.add_argument
    add_options(parser, "folder", "--json")
    add("files", type=Path, nargs="*", metavar="FILE", help="rows to measure on instead")
    add_format_options(parser, "as the configuration of the run says")


def evaluate(options: argparse.Namespace) -> None:
    """Print the metrics of a finished run."""
    from fedminmax.cli.main import say
    from fedminmax.findings.records import record_as_json
    from fedminmax.runs.finish import measure_files
    from fedminmax.runs.folder import finished_results

    folder, files = options.folder, options.files
    results = finished_results(folder)
    if files:
        measured = measure_files(folder, files, format_changes(options))
        for warning in measured.warnings:
            say(f"warning: {warning}")
        test, skipped = measured.test, dict(measured.skipped)
        rows = ", ".join(map(str, files))
    else:
        test, skipped, rows = results.test, {}, "held-out records"
    if not test.rows:
        raise InputError(f"{folder} has no held-out records; give files to measure on")
    if options.json:
        content = {
            "run": str(folder),
            "groups": results.groups,
            "positive_class": results.classes[1] if len(results.classes) == 2 else None,
            "converged": results.converged,
            "test": record_as_json(test),
            "skipped": skipped,
        }
        print(json.dumps(content))
        return
    print_evaluated(results, test, f"{results.method.name} on {rows}", skipped)


def print_evaluated(
    results: "Results", test: "Measured", title: str, skipped: Mapping[str, int]
) -> None:
    """Print every metric by group, and what to know before reading it."""
    from fedminmax.cli.terminal import print_table, wide_console
    from fedminmax.core.text import counted
    from fedminmax.findings.disclosure import small_groups_text
    from fedminmax.findings.tables import metrics_table, parity_table
    from fedminmax.findings.training import convergence_of

    console = wide_console()
    table = metrics_table(results, test, title)
    print_table(console, table.caption, table.headers, table.lines)
    if any(metric.worst_group is not None for metric in test.metrics.values()):
        console.print("A star marks the worst group.")
    between = parity_table(results, test, sites=test is results.test)
    if between is not None:
        print_table(console, between.caption, between.headers, between.lines)
    if not results.converged:
        console.print(convergence_of(results))
    small = small_groups_text(results.groups, test)
    if small:
        console.print(small)
    if skipped:
        records, groups = counted(sum(skipped.values()), "record"), counted(len(skipped), "group")
        console.print(f"Not in the table: {records} of {groups} without training records.")
