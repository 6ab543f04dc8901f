"""The options of the commands on tables and on their runs, from `init` to `methods`."""

import argparse
from pathlib import Path
from typing import Any

from fedminmax.cli.arguments.types import (
    FORCE,
    add_certify,
    add_format_options,
    add_gap,
    add_patience,
    add_validation,
    check_new_file,
    duration,
    format_changes,
    overrides_of,
    positive_int,
)
from fedminmax.core.errors import InputError

CONFIG_FILE = Path("fedminmax.toml")
PREDICTIONS_FILE = Path("predictions.csv")
REPORT_FILE = Path("report.html")


def add_init(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add `init` to the command line."""
    parser = commands.add_parser(
        "init",
        help="look at your files and write a commented fedminmax.toml",
        description="Look at the sites' files (CSV or Parquet) and write a commented "
        "configuration: target, classes, features with their kinds and categories, protected "
        "columns, sites, model, method.",
        epilog="example: fedminmax init north.csv south.csv --target income --groups sex,race",
    )
    add = parser.add_argument
    add(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="one per site, or one with --site-column",
    )
    add("--target", required=True, metavar="COLUMN", help="the column to predict")
    add(
        "--groups",
        required=True,
        type=column_list,
        metavar="COLUMN[,COLUMN]",
        help="sensitive attributes; several are crossed",
    )
    add("--site-column", metavar="COLUMN", help="of one file: the column that names the site")
    add(
        "--person",
        metavar="COLUMN",
        help="the column that identifies persons: rows of one person are held out together",
    )
    add(
        "--minimum-category",
        type=positive_int,
        default=10,
        metavar="N",
        help="skip categories and group values with fewer rows over all files (10)",
    )
    add(
        "--merge-spellings",
        action="store_true",
        help="read labels, groups and categories that differ in letter case or spaces as one",
    )
    add(
        "--category",
        type=column_list,
        default=[],
        metavar="COLUMN[,COLUMN]",
        help="columns whose numbers are codes: each number is a category",
    )
    add(
        "--task",
        choices=("classification", "regression"),
        help="whether the target is a class or a quantity (as its values are)",
    )
    add(
        "--positive",
        metavar="CLASS",
        help="of two classes, the one that rates are about: missed, false alarms (the second)",
    )
    add("--ranges", action="store_true", help="write the ranges of numeric columns as comments")
    add("--out", type=Path, default=CONFIG_FILE, metavar="FILE", help=f"({CONFIG_FILE})")
    add("--force", action="store_true", help=FORCE)
    add_format_options(parser, "as found in the files")
    parser.set_defaults(run=_run_init)


def column_list(text: str) -> list[str]:
    """Split a comma-separated list of column names."""
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise argparse.ArgumentTypeError(f"'{text}' has an empty name; give column names")
    return names


def _run_init(options: argparse.Namespace) -> None:
    from fedminmax.cli.commands.init import init_config
    from fedminmax.data.tables.propose import InitChoices

    choices = InitChoices(
        minimum_category=options.minimum_category,
        ranges=options.ranges,
        merge_spellings=options.merge_spellings,
        format=format_changes(options),
        person_column=options.person,
        task=options.task,
        positive=options.positive,
        categories=tuple(options.category),
    )
    init_config(
        options.files,
        options.target,
        groups=options.groups,
        site=options.site_column,
        out=options.out,
        choices=choices,
        force=options.force,
    )


def add_advise(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add `advise` to the command line."""
    parser = commands.add_parser(
        "advise",
        help="show before training what the row counts imply",
        description="Show before any training what the row counts by site and group imply: "
        "whether protecting the worst site protects the worst group, which groups are too "
        "small, what a site reveals to the server, how many rounds and bytes a run takes, and "
        "what would help. Nothing is trained.",
        epilog="example: fedminmax advise fedminmax.toml --out advice.html",
    )
    add = parser.add_argument
    add(
        "config",
        type=Path,
        metavar="CONFIG",
        help="a fedminmax.toml, or a run folder's census.json",
    )
    add("--json", action="store_true", help="print only machine-readable advice on stdout")
    add(
        "--out",
        type=Path,
        metavar="FILE",
        help="also write a page (.html), or only the figure (.svg, .png)",
    )
    add("--force", action="store_true", help=FORCE)
    parser.set_defaults(run=_run_advise)


def _run_advise(options: argparse.Namespace) -> None:
    from fedminmax.cli.commands.advise import give_advice

    give_advice(options.config, options.out, as_json=options.json, force=options.force)


def add_train(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add `train` to the command line."""
    parser = commands.add_parser(
        "train",
        help="train on your own tables, as fedminmax.toml says",
        description="Train the model of a configuration, and a baseline to compare it with. "
        "Interrupt it at any time; run the same command again, and it ends with the same numbers.",
        epilog="example: fedminmax train fedminmax.toml --out runs/first",
    )
    add = parser.add_argument
    add("config", type=Path, metavar="CONFIG", help="a fedminmax.toml; 'fedminmax init' writes one")
    add(
        "--out",
        type=Path,
        metavar="RUN",
        help="the run folder (runs/NAME of the configuration; with --seeds runs/NAME-seeds)",
    )
    add("--rounds", type=positive_int, metavar="N", help="instead of those in the configuration")
    add_validation(parser)
    add_patience(parser)
    add_gap(parser)
    add_certify(parser)
    add(
        "--budget",
        type=duration,
        metavar="TIME",
        help="stop at a checkpoint after 90s, 30m, 2h, ...; run it again to continue",
    )
    add(
        "--seeds",
        type=positive_int,
        metavar="N",
        help="train N times, from the configuration's seed upwards: other splits and starts, each "
        "in its own folder; reports how far the results spread",
    )
    add("--device", default="cpu", metavar="NAME", help="cpu, cuda, cuda:1, mps, ... (cpu)")
    add("--tensorboard", action="store_true", help="also log rounds for TensorBoard, in the run")
    add("--mlflow", metavar="ADDRESS", help="also log rounds to MLflow: sqlite:///mlflow.db, ...")
    add("--json", action="store_true", help="print only machine-readable results on stdout")
    parser.set_defaults(run=_run_train)


def _run_train(options: argparse.Namespace) -> None:
    from fedminmax.cli.commands.train import Request, train, train_seeds

    name = options.config.stem if options.seeds is None else f"{options.config.stem}-seeds"
    request = Request(
        options.config,
        options.out or Path("runs", name),
        overrides=overrides_of(options),
        budget=options.budget,
        device=options.device,
        as_json=options.json,
    )
    if options.seeds is None:
        train(request)
    else:
        train_seeds(request, options.seeds)


def add_evaluate(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add `evaluate` to the command line."""
    parser = commands.add_parser(
        "evaluate",
        help="metrics by group of a trained model",
        description="Show a trained model's metrics by group with their intervals: on the rows "
        "held out from training, or on your own files with target and sensitive attributes.",
        epilog="example: fedminmax evaluate runs/fedminmax new_north.csv",
    )
    add = parser.add_argument
    add("folder", type=Path, metavar="RUN", help="a run folder of 'fedminmax train'")
    add("files", type=Path, nargs="*", metavar="FILE", help="rows to measure on instead")
    add("--json", action="store_true", help="print only machine-readable metrics on stdout")
    add_format_options(parser, "as the configuration of the run says")
    parser.set_defaults(run=_run_evaluate)


def _run_evaluate(options: argparse.Namespace) -> None:
    from fedminmax.cli.commands.evaluate import evaluate

    evaluate(options.folder, options.files, format_changes(options), as_json=options.json)


def add_predict(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add `predict` to the command line."""
    parser = commands.add_parser(
        "predict",
        help="predictions of a trained model for new rows",
        description="Predict the rows of a file, in their order. It needs only the feature "
        "columns: no target, and no sensitive attribute that is not a feature.",
        epilog="example: fedminmax predict runs/fedminmax new.csv --out new_predictions.csv",
    )
    add = parser.add_argument
    add("folder", type=Path, metavar="RUN", help="a run folder of 'fedminmax train'")
    add("file", type=Path, metavar="FILE", help="CSV or Parquet")
    add("--out", type=Path, default=PREDICTIONS_FILE, metavar="FILE", help=f"({PREDICTIONS_FILE})")
    add("--force", action="store_true", help=FORCE)
    add_format_options(parser, "as the configuration of the run says")
    parser.set_defaults(run=_run_predict)


def _run_predict(options: argparse.Namespace) -> None:
    from fedminmax.cli.commands.predict import predict

    changes = format_changes(options)
    predict(options.folder, options.file, options.out, changes, force=options.force)


def add_export(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add `export` to the command line."""
    parser = commands.add_parser(
        "export",
        help="a trained model for other programs (ONNX, MLflow)",
        description="Write a trained model as ONNX, from encoded features or raw columns to "
        "probabilities or quantities, with names of features and classes in its metadata; or as "
        "an MLflow model, for 'mlflow models serve'.",
        epilog="example: fedminmax export runs/fedminmax --onnx model.onnx --columns",
    )
    add = parser.add_argument
    add("folder", type=Path, metavar="RUN", help="a run folder of 'fedminmax train'")
    form = parser.add_mutually_exclusive_group(required=True)
    form.add_argument("--onnx", type=Path, metavar="FILE", help="the ONNX file to write")
    form.add_argument("--mlflow", type=Path, metavar="FOLDER", help="the MLflow model to write")
    add(
        "--columns",
        action="store_true",
        help="ONNX with the encoding inside: an input for each raw column",
    )
    add("--force", action="store_true", help=FORCE)
    parser.set_defaults(run=_run_export)


def _run_export(options: argparse.Namespace) -> None:
    from fedminmax.exports.saved_model import load_model

    if options.mlflow is not None:
        from fedminmax.exports.mlflow_model import model_file_of, write_mlflow

        if options.columns:
            raise InputError("--columns is for --onnx; an MLflow model always takes raw columns")
        if options.mlflow.exists() and not options.force:
            raise InputError(f"{options.mlflow} exists; give another --mlflow, or --force")
        write_mlflow(options.mlflow, model_file_of(options.folder))
        print(f"{options.mlflow}: mlflow models serve -m {options.mlflow} --env-manager local")
        return

    from fedminmax.exports.onnx import write_onnx

    check_new_file(options.onnx, "--onnx", force=options.force)
    saved = load_model(options.folder)
    write_onnx(options.onnx, saved, columns=options.columns)
    encoding, columns = saved.encoding, options.columns
    inputs = len(encoding.features) if columns else len(encoding.names)
    print(f"{options.onnx}: {inputs} {'columns' if columns else 'encoded features'}")


def add_report(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add `report` to the command line."""
    parser = commands.add_parser(
        "report",
        help="write one HTML page about finished runs",
        description="Write one HTML page about the run folders of 'fedminmax train': which group "
        "was worst off, what it gained, which groups paid for it and how certain that is, with "
        "figures, their numbers and all settings. The page needs no network.",
        epilog="example: fedminmax report runs/clinic --out clinic.html --figures figures",
    )
    add = parser.add_argument
    add("runs", nargs="+", type=Path, metavar="RUN", help="a run folder; several are compared")
    add("--out", type=Path, default=REPORT_FILE, metavar="FILE", help=f"({REPORT_FILE})")
    add("--figures", type=Path, metavar="FOLDER", help="also write each figure as PNG and SVG")
    add(
        "--summary",
        type=Path,
        metavar="FILE",
        help="also write one page for a board, which prints on one sheet; for one RUN",
    )
    add("--force", action="store_true", help="replace an earlier report and its figures")
    parser.set_defaults(run=_run_report)


def _run_report(options: argparse.Namespace) -> None:
    from fedminmax.cli.commands.report import write_report

    write_report(
        options.runs, options.out, options.figures, force=options.force, summary=options.summary
    )


def add_methods(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add `methods` to the command line."""
    parser = commands.add_parser(
        "methods",
        help="list every method: paper, goal, what sites reveal, options",
        description="List every method: its paper, what it optimises, what a site reveals to "
        "the server, whether it needs all sites, and its options with their defaults.",
        epilog="example: fedminmax methods fedminmax qfedavg",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these, with their options")
    parser.add_argument("--json", action="store_true", help="print machine-readable cards")
    parser.set_defaults(run=_run_methods)


def _run_methods(options: argparse.Namespace) -> None:
    from fedminmax.cli.commands.methods import list_methods

    list_methods(options.names, as_json=options.json)
