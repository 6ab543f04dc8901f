"""`fedminmax predict`: one line of predictions for each row of a file."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fedminmax.cli.options import (
    FORCE,
    Commands,
    add_command,
    add_format_options,
    check_new_file,
    format_changes,
)
from fedminmax.core.errors import InputError

if TYPE_CHECKING:
    from fedminmax.config.file_format import FileFormat

PREDICTIONS_FILE = Path("predictions.csv")


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "predict",
        predict,
        short="predictions of a trained model for new rows",
        text="Predict the rows of a file, in their order. It needs only the feature columns: no "
        "target, and no sensitive attribute that is not a feature.",
        example="predict runs/fedminmax new.csv --out new_predictions.csv",
    )
    add = parser.add_argument
    add("folder", type=Path, metavar="RUN", help="a run folder of 'fedminmax train'")
    add("file", type=Path, metavar="FILE", help="CSV or Parquet")
    add("--out", type=Path, default=PREDICTIONS_FILE, metavar="FILE", help=f"({PREDICTIONS_FILE})")
    add(
        "--explain",
        action="store_true",
        help="add columns: each row's score, and what every column adds to it (additive models)",
    )
    add("--force", action="store_true", help=FORCE)
    add_format_options(parser, "as the configuration of the run says")


def predict(options: argparse.Namespace) -> None:
    """Write row numbers (from 1, without the header), predictions and probabilities."""
    from fedminmax.cli.messages import say
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
