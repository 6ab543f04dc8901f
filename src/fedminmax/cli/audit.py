"""`fedminmax audit`: measure a model that was trained elsewhere by group; nothing is trained."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedminmax.cli.options import (
    Commands,
    add_command,
    add_format_options,
    add_options,
    check_parents,
    init_choices,
    name_list,
)
from fedminmax.core.errors import InputError

if TYPE_CHECKING:
    from fedminmax.exports.given_model import GivenModel
    from fedminmax.findings.records import Results

DEFAULT_FOLDER = Path("runs", "audit")


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "audit",
        audit,
        short="measure by group a model that you already have",
        text="Measure a model that was trained elsewhere by group, with the intervals and the "
        "report of our own runs. MODEL is an ONNX file, a skops file of scikit-learn, or a run "
        "folder; with --predictions the files have its predictions as a column, and there is no "
        "MODEL.",
        example="audit model.onnx north.csv south.csv --target ill --groups sex",
    )
    add = parser.add_argument
    add("paths", nargs="+", metavar="[MODEL] FILE", help="the model, then one file per site")
    add_options(parser, "--target", "--groups", "--site-column", "--task", "--positive")
    add(
        "--predictions",
        type=name_list,
        metavar="COLUMN[,COLUMN]",
        help="columns with predictions, instead of MODEL: a class, a number, the probability of "
        "the positive class, or a probability for each class in their order",
    )
    add(
        "--against",
        metavar="OTHER",
        help="a second model, or the name of a column of its predictions: both are compared "
        "record by record",
    )
    add(
        "--columns",
        type=name_list,
        default=(),
        metavar="COLUMN[,COLUMN]",
        help="of a model that does not name its columns: these, in the order of its training",
    )
    add("--out", type=Path, default=DEFAULT_FOLDER, metavar="RUN", help=f"({DEFAULT_FOLDER})")
    add(
        "--write-predictions",
        type=Path,
        metavar="FOLDER",
        help="also write each file there with its predictions as columns, for [audit] of a "
        "configuration between sites",
    )
    add_options(parser, "--json")
    add_format_options(parser, "as found in the files")


def audit(options: argparse.Namespace) -> None:
    """Measure the model, write its folder and print what was found."""
    from fedminmax.data.tables.read_file import check_path
    from fedminmax.findings.records import record_as_json
    from fedminmax.runs.audit import audit_files, write_audit

    out = options.out
    check_parents(out, "--out")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} already exists; give another folder with --out")
    scored = options.write_predictions
    if scored is not None and scored.exists():
        raise InputError(f"{scored} already exists; give another with --write-predictions")
    models, files = models_and_files(options)
    for file in files:
        check_path(file)
    found = audit_files(
        models,
        files,
        options.target,
        options.groups,
        site_column=options.site_column,
        choices=init_choices(options),
        scored_folder=scored,
    )
    write_audit(out, found)
    if options.json:
        results, against, *_ = (*map(record_as_json, found.results), None, None)
        print(json.dumps({"run": str(out), "results": results, "against": against}))
    else:
        print_audit(out, found.results)


def models_and_files(options: argparse.Namespace) -> tuple[list["GivenModel"], list[Path]]:
    """Return the model, a second one if there is one, and the files with records."""
    from fedminmax.exports.given_model import PredictionColumns, read_model

    paths = [Path(text) for text in options.paths]
    models: list[GivenModel] = []
    if options.predictions:
        models.append(PredictionColumns(options.predictions))
    else:
        first, *paths = paths
        models.append(read_model(first, options.columns))
    if not paths:
        raise InputError(
            f"only {options.paths[0]} was given; give the model and then files with records, or "
            "name a column of theirs with --predictions"
        )
    if options.against is not None:
        other = Path(options.against)
        models.append(
            read_model(other, options.columns if options.predictions else ())
            if other.exists()
            else PredictionColumns((options.against,))
        )
    return models, paths


def print_audit(folder: Path, results: Sequence["Results"]) -> None:
    """Print the metrics by group and, with a second model, the verdict."""
    from fedminmax.cli.terminal import print_table, wide_console
    from fedminmax.findings.findings import findings
    from fedminmax.findings.tables import Table, metrics_table, mistakes_tables, parity_table
    from fedminmax.runs.folder import RESULTS_FILE

    console = wide_console()
    model, *others = results
    known = findings(model, others[0] if others else None)
    tables: Sequence[Table] = (
        mistakes_tables(model)
        if others
        else [metrics_table(model, model.test, f"{model.method.name} by group")]
    )
    between = parity_table(model, model.test)
    for table in (*tables, *([] if between is None else [between])):
        print_table(console, table.caption, table.headers, table.lines)
    if not others:
        console.print("A star marks the worst group.")
    if known.small_groups:
        console.print(known.small_groups)
    if known.verdict is not None:
        console.print(f"{known.headline} {known.verdict.reason}")
    for note in model.notes:
        console.print(note)
    console.print(f"Results: {folder / RESULTS_FILE}", soft_wrap=True)
    console.print(f"Next: fedminmax report {folder}", soft_wrap=True)
