"""`fedminmax predict`: one line of predictions for each row of a file."""

import sys
from dataclasses import replace
from pathlib import Path

from fedminmax.cli.arguments.types import check_new_file
from fedminmax.core.errors import InputError
from fedminmax.core.files import atomic_write
from fedminmax.core.text import counted
from fedminmax.data.tables.encode import encode_features
from fedminmax.data.tables.file_format import FormatChanges, check_format
from fedminmax.data.tables.parse_rows import parse_features
from fedminmax.runs.model import load_model


def predict(folder: Path, file: Path, out: Path, changes: FormatChanges, *, force: bool) -> None:
    """Write row numbers (from 1, without the header), predictions and probabilities."""
    check_new_file(out, "--out", force=force)
    if out.exists() and out.samefile(file):
        raise InputError(f"{out} is the file with the rows to predict; give another --out")
    saved = load_model(folder)
    saved = replace(saved, format=check_format(changes.apply(saved.format), "the command's"))
    table = saved.table(file)
    rows = parse_features(table, saved.encoding.schema)
    for warning in rows.warnings:
        print(f"fedminmax: warning: {warning}", file=sys.stderr)
    scores = saved.scores(encode_features(rows, saved.encoding))
    lines = saved.answer_columns(scores).insert_column(0, table.row_numbers.alias("row"))
    with atomic_write(out) as temporary:
        lines.write_csv(temporary)
    print(
        f"{out}: predictions of '{saved.encoding.schema.target.column}' for "
        f"{counted(rows.count, 'row')}"
    )
