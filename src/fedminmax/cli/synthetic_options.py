"""The words of `fedminmax reproduce synthetic`."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedminmax.cli.option_types import NameList, positive, positive_int
from fedminmax.cli.study_options import add_folder_options, add_training_options

METHODS = (
    *("afl", "fedavg", "q-fedavg-0.2", "q-fedavg-5", "fedminmax"),
    *("afl-fast", "fedavg-fast", "fedminmax-fast"),
    "centralized",
)
SETTINGS = ("ESG", "SSG")


@dataclass(frozen=True)
class Defaults:
    """What a call takes where the user gave no word."""

    rows: int
    rounds: int
    local_rounds: int
    fast_rounds: int
    model: str
    hidden: tuple[int, ...]
    learning_rate: float
    epochs: int
    batch_size: int
    methods: tuple[str, ...]


FULL = Defaults(
    rows=6000,
    rounds=1000,
    local_rounds=20,
    fast_rounds=100,
    model="mlp",
    hidden=(512, 512, 512, 512),
    learning_rate=0.1,
    epochs=15,
    batch_size=100,
    methods=METHODS,
)
# A minimax over holders needs thousands of rows at each to be what it is in the population, and a
# linear model is what makes so many rows cheap. Holders take one step on all their rows.
QUICK = Defaults(
    rows=200_000,
    rounds=200,
    local_rounds=30,
    fast_rounds=15,
    model="sides",
    hidden=(64, 64),
    learning_rate=1.0,
    epochs=1,
    batch_size=10_000,
    methods=("fedavg", "q-fedavg-5", "fedminmax", "afl-fast", "fedminmax-fast"),
)


def add_to(experiments: "argparse._SubParsersAction[Any]") -> None:
    """Add the experiment to the command line."""
    parser = experiments.add_parser(
        "synthetic",
        help="Table 1: two groups, one feature, an analytic optimum",
        description=(
            "Table 1 of Papadaki et al. 2021: worst- and best-group Brier risk on the synthetic "
            "data, next to the paper's numbers and the analytic optimum. Interrupt it at any "
            "time; the same command goes on."
        ),
        epilog="example: fedminmax reproduce synthetic --settings ESG --methods fedavg,fedminmax",
    )
    add = parser.add_argument
    add(
        "--quick",
        action="store_true",
        help="a linear model of the side of 0, 200000 rows, one fold",
    )
    add_folder_options(parser, "runs/synthetic")
    add("--methods", type=NameList(METHODS), metavar="LIST", help=f"of {','.join(METHODS)}")
    add("--settings", type=NameList(SETTINGS), metavar="LIST", help=f"of {','.join(SETTINGS)}")
    add("--folds", type=positive_int, metavar="N", help="number of folds (3; quick: 1)")
    add(
        "--folds-by",
        choices=("seeds", "cross-validation"),
        default="seeds",
        help="own rows for each fold, or parts of one training set (seeds)",
    )
    add(
        "--model",
        choices=("mlp", "sides"),
        help="the paper's network, or a linear model of the side of 0 that x is on (mlp; quick: "
        "sides)",
    )
    add("--rows", type=positive_int, metavar="N", help="training rows (6000; quick: 200000)")
    add(
        "--rounds",
        type=positive_int,
        metavar="N",
        help="rounds of AFL, FedMinMax, Centralized (1000; quick: 200)",
    )
    add(
        "--local-rounds",
        type=positive_int,
        metavar="N",
        help="rounds of FedAvg and q-FedAvg, each of several local epochs (20; quick: 30)",
    )
    add(
        "--fast-rounds",
        type=positive_int,
        metavar="N",
        help="most rounds of the fast methods (100; quick: 15): validation rows choose one of "
        "them, or with --model sides the method knows when it is done",
    )
    add("--learning-rate", type=positive, metavar="X", help="eta_theta (0.1; quick: 1)")
    add_training_options(parser, epochs="15; quick: 1", batch_size="100; quick: 10000")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> None:
    from fedminmax.cli.reproduce_synthetic import reproduce_synthetic
    from fedminmax.cli.run_study import Call
    from fedminmax.core.errors import InputError
    from fedminmax.studies.study import Length, Selection
    from fedminmax.studies.synthetic import SyntheticConfig

    defaults = QUICK if options.quick else FULL
    model = options.model or defaults.model
    cross_validation = options.folds_by == "cross-validation"
    folds = options.folds or (1 if options.quick and not cross_validation else 3)
    if cross_validation and folds < 2:
        raise InputError("cross-validation with 1 fold leaves no rows; give --folds 2 or more")
    config = SyntheticConfig(
        rows=options.rows or defaults.rows,
        holders=options.holders or 40,
        model=model,
        hidden=defaults.hidden if model == "mlp" else (),
        learning_rate=options.learning_rate or defaults.learning_rate,
        adversary_rate=options.adversary_rate,
        epsilon=options.epsilon,
        epochs=options.epochs or defaults.epochs,
        batch_size=options.batch_size or defaults.batch_size,
        folds_by=options.folds_by,
        # By seeds, folds are independent: later calls may add some to the same folder.
        folds_in_all=folds if cross_validation else 0,
        seed=options.seed,
        device=options.device,
    )
    methods = options.methods or list(defaults.methods)
    settings = options.settings or list(SETTINGS)
    if "centralized" in methods:
        settings = [*settings, "centralized"]
    folder = options.out or Path("runs", "synthetic-quick" if options.quick else "synthetic")
    call = Call(folder, options.budget, as_json=options.json, status_only=options.status)
    selection = Selection(
        settings,
        methods,
        list(range(folds)),
        Length(
            options.rounds or defaults.rounds,
            options.local_rounds or defaults.local_rounds,
            options.fast_rounds or defaults.fast_rounds,
        ),
    )
    reproduce_synthetic(config, selection, call, quick=options.quick)
