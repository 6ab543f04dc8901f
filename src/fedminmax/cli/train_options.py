"""The words of `fedminmax train`."""

import argparse
from pathlib import Path
from typing import Any

from fedminmax.cli.option_types import duration, positive_int
from fedminmax.cli.proof_options import add_certify, add_gap
from fedminmax.cli.validation_options import add_validation


def add_to(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add `train` to the command line."""
    parser = commands.add_parser(
        "train",
        help="train on your own tables, as fedminmax.toml says",
        description="Train the model of a configuration, and a baseline to compare it with. "
        "Interrupt it at any time; the same command goes on and ends with the same numbers.",
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
    add_gap(parser)
    add_certify(parser)
    add(
        "--budget",
        type=duration,
        metavar="TIME",
        help="stop at a checkpoint after 90s, 30m, 2h, ...; the same command goes on",
    )
    add(
        "--seeds",
        type=positive_int,
        metavar="N",
        help="train N times, with seeds from the configuration's on: other splits and starts, each "
        "in a folder of its own, and how far the results spread",
    )
    add("--device", default="cpu", metavar="NAME", help="cpu, cuda, cuda:1, mps, ... (cpu)")
    add("--tensorboard", action="store_true", help="write rounds for TensorBoard into the run too")
    add("--mlflow", metavar="ADDRESS", help="write rounds to MLflow too: sqlite:///mlflow.db, ...")
    add("--json", action="store_true", help="print machine-readable results alone on stdout")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> None:
    from fedminmax.cli.train import Request, train
    from fedminmax.cli.train_seeds import train_seeds

    name = options.config.stem if options.seeds is None else f"{options.config.stem}-seeds"
    request = Request(
        options.config,
        options.out or Path("runs", name),
        options.rounds,
        options.budget,
        options.device,
        tensorboard=options.tensorboard,
        mlflow=options.mlflow,
        as_json=options.json,
        gap=options.gap,
        validation=options.validation,
        patience=options.patience,
        certify=options.certify,
    )
    if options.seeds is None:
        train(request)
    else:
        train_seeds(request, options.seeds)
