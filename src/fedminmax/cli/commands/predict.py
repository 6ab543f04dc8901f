"""`fedminmax predict`: one line of predictions for each row of a file."""

from dataclasses import replace
from pathlib import Path

from fedminmax.cli.arguments.types import check_new_file
from fedminmax.cli.terminal import say
from fedminmax.config.file_format import FileFormat, FormatChanges, check_format
from fedminmax.config.read import read_config
from fedminmax.core.errors import InputError
from fedminmax.core.files import atomic_write
from fedminmax.core.text import counted
from fedminmax.data.tables.encode import distance_warnings, encode_features
from fedminmax.data.tables.odd_rows import shown_here
from fedminmax.data.tables.parse_rows import parse_features
from fedminmax.data.tables.sources import format_of_file
from fedminmax.exports.saved_model import load_model
from fedminmax.runs.layout import CONFIG_FILE


def predict(folder: Path, file: Path, out: Path, changes: FormatChanges, *, force: bool) -> None:
    """Write row numbers (from 1, without the header), predictions and probabilities."""
    check_new_file(out, "--out", force=force)
    if out.exists() and out.samefile(file):
        raise InputError(f"{out} is the file with the rows to predict; give another --out")
    saved = load_model(folder)
    own, chosen = _format_of(folder, file, saved.format, changes)
    saved = replace(saved, format=own)
    table = saved.table(file)
    rows = parse_features(table, saved.encoding.schema)
    for warning in (
        *chosen,
        *shown_here(rows.odd),
        *distance_warnings(rows, saved.encoding, str(file)),
    ):
        say(f"warning: {warning}")
    scores = saved.scores(encode_features(rows, saved.encoding))
    lines = saved.answer_columns(scores).insert_column(0, table.row_numbers.alias("row"))
    with atomic_write(out) as temporary:
        lines.write_csv(temporary)
    print(
        f"{out}: predictions of '{saved.encoding.schema.target.column}' for "
        f"{counted(rows.count, 'row')}"
    )


def _format_of(
    folder: Path, file: Path, agreed: FileFormat, changes: FormatChanges
) -> tuple[FileFormat, tuple[str, ...]]:
    """Return the format of the file; a model without its run knows only the common one."""
    path = folder / CONFIG_FILE
    if path.is_file():
        return format_of_file(file, read_config(path), changes)
    return check_format(changes.apply(agreed), "the command's"), ()
