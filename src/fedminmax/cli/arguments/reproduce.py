"""The options of `fedminmax reproduce`: the paper's experiments on synthetic data and FashionMNIST.

Nothing heavy is imported here, so that help is instant.
"""

import argparse
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

from fedminmax.cli.arguments.types import (
    NameList,
    channel_pair,
    duration,
    not_negative,
    positive,
    positive_int,
    whole_number,
)

FAST_METHODS = ("afl-fast", "fedavg-fast", "fedminmax-fast")
SYNTHETIC_METHODS = (
    *("afl", "fedavg", "q-fedavg-0.2", "q-fedavg-5", "fedminmax"),
    *(*FAST_METHODS, "centralized"),
)
SYNTHETIC_SETTINGS = ("ESG", "SSG")
FASHION_METHODS = ("afl", "fedavg", "fedminmax", *FAST_METHODS, "centralized")
FASHION_SETTINGS = ("ESG", "SSG", "PSG")


def add_reproduce(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add `reproduce` and its experiments to the command line."""
    reproduce = commands.add_parser(
        "reproduce",
        help="run an experiment of the paper and print its table next to ours",
        description="Run an experiment of the paper and print its table next to ours.",
        epilog="example: fedminmax reproduce synthetic --quick",
    )
    experiments = reproduce.add_subparsers(
        dest="experiment", title="experiments", metavar="EXPERIMENT", required=True
    )
    add_synthetic(experiments)
    add_fashion(experiments)


def add_folder_options(parser: argparse.ArgumentParser, folder: str) -> None:
    """Add the options for the output folder and for how much work one call does."""
    add = parser.add_argument
    add("--out", type=Path, metavar="FOLDER", help=f"results and checkpoints ({folder})")
    add(
        "--budget",
        type=duration,
        metavar="TIME",
        help="stop at a checkpoint after 90s, 30m, 2h, ...; run it again to continue",
    )
    add("--status", action="store_true", help="show finished and remaining runs, and exit")
    add("--json", action="store_true", help="print machine-readable results alone on stdout")


def add_training_options(
    parser: argparse.ArgumentParser,
    *,
    sites: str = "40",
    epochs: str = "15",
    batch_size: str = "100",
) -> None:
    """Add the hyperparameters of the paper's Table 3; the texts describe the defaults."""
    add = parser.add_argument
    add("--seed", type=whole_number, default=0, metavar="N", help="of all randomness (0)")
    add("--sites", type=positive_int, metavar="N", help=f"number of sites ({sites})")
    add(
        "--adversary-rate", type=positive, default=0.1, metavar="X", help="eta_mu, eta_lambda (0.1)"
    )
    add("--epsilon", type=not_negative, default=0.0, metavar="X", help="FedMinMax's floor (0)")
    add("--epochs", type=positive_int, metavar="N", help=f"local epochs E ({epochs})")
    add("--batch-size", type=positive_int, metavar="N", help=f"local batch ({batch_size})")
    add("--device", default="cpu", metavar="NAME", help="cpu, cuda, cuda:1, mps, ... (cpu)")


@dataclass(frozen=True)
class SyntheticDefaults:
    """The defaults of options that the user did not give."""

    rows: int
    rounds: int
    _: KW_ONLY
    local_rounds: int
    fast_rounds: int
    model: str
    hidden: tuple[int, ...]
    learning_rate: float
    epochs: int
    batch_size: int
    methods: tuple[str, ...]


SYNTHETIC_FULL = SyntheticDefaults(
    rows=6000,
    rounds=1000,
    local_rounds=20,
    fast_rounds=100,
    model="mlp",
    hidden=(512, 512, 512, 512),
    learning_rate=0.1,
    epochs=15,
    batch_size=100,
    methods=SYNTHETIC_METHODS,
)
# A minimax over sites needs thousands of rows at each site to match the population's, and only
# a linear model makes this many rows cheap. Sites take one step on all their rows.
SYNTHETIC_QUICK = SyntheticDefaults(
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


def add_synthetic(experiments: "argparse._SubParsersAction[Any]") -> None:
    """Add the experiment to the command line."""
    parser = experiments.add_parser(
        "synthetic",
        help="Table 1: two groups, one feature, an analytic optimum",
        description=(
            "Table 1 of Papadaki et al. 2021: worst- and best-group Brier risk on the synthetic "
            "data, next to the paper's numbers and the analytic optimum. Interrupt it at any "
            "time; run the same command again to continue."
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
    add(
        "--methods",
        type=NameList(SYNTHETIC_METHODS),
        metavar="LIST",
        help=f"of {','.join(SYNTHETIC_METHODS)}",
    )
    add(
        "--settings",
        type=NameList(SYNTHETIC_SETTINGS),
        metavar="LIST",
        help=f"of {','.join(SYNTHETIC_SETTINGS)}",
    )
    add("--folds", type=positive_int, metavar="N", help="number of folds (3; quick: 1)")
    add(
        "--folds-by",
        choices=("seeds", "cross_validation"),
        default="seeds",
        help="new rows for each fold, or parts of one training set (seeds)",
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
        help="maximum rounds of the fast methods (100; quick: 15): validation rows choose the "
        "best, or with --model sides the method stops when it has converged",
    )
    add("--learning-rate", type=positive, metavar="X", help="eta_theta (0.1; quick: 1)")
    add_training_options(parser, epochs="15; quick: 1", batch_size="100; quick: 10000")
    parser.set_defaults(run=_run_synthetic)


def _run_synthetic(options: argparse.Namespace) -> None:
    from fedminmax.cli.commands.reproduce import reproduce_synthetic
    from fedminmax.cli.commands.run_study import Call
    from fedminmax.core.errors import InputError
    from fedminmax.studies.study import Length, Selection
    from fedminmax.studies.synthetic import SyntheticConfig

    defaults = SYNTHETIC_QUICK if options.quick else SYNTHETIC_FULL
    model = options.model or defaults.model
    cross_validation = options.folds_by == "cross_validation"
    folds = options.folds or (1 if options.quick and not cross_validation else 3)
    if cross_validation and folds < 2:
        raise InputError("cross-validation with 1 fold leaves no rows; give --folds 2 or more")
    config = SyntheticConfig(
        rows=options.rows or defaults.rows,
        sites=options.sites or 40,
        model=model,
        hidden=defaults.hidden if model == "mlp" else (),
        learning_rate=options.learning_rate or defaults.learning_rate,
        adversary_rate=options.adversary_rate,
        epsilon=options.epsilon,
        epochs=options.epochs or defaults.epochs,
        batch_size=options.batch_size or defaults.batch_size,
        folds_by=options.folds_by,
        # With seeds, folds are independent: later calls may add folds to the same folder.
        folds_in_all=folds if cross_validation else 0,
        seed=options.seed,
        device=options.device,
    )
    methods = options.methods or list(defaults.methods)
    settings = options.settings or list(SYNTHETIC_SETTINGS)
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


@dataclass(frozen=True)
class FashionDefaults:
    """The defaults of options that the user did not give."""

    rows: int
    sites: int
    _: KW_ONLY
    rounds: int
    local_rounds: int
    fast_rounds: int
    channels: tuple[int, int]
    learning_rate: float
    folds: int
    epochs: int = 15
    batch_size: int = 100


FASHION_FULL = FashionDefaults(
    rows=60_000,
    sites=40,
    rounds=1500,
    local_rounds=50,
    fast_rounds=100,
    channels=(16, 32),
    learning_rate=0.1,
    folds=3,
)
FASHION_QUICK = FashionDefaults(
    rows=400,
    sites=20,
    rounds=150,
    local_rounds=5,
    fast_rounds=40,
    channels=(8, 16),
    learning_rate=0.5,
    folds=1,
)


def add_fashion(experiments: "argparse._SubParsersAction[Any]") -> None:
    """Add the experiment to the command line."""
    parser = experiments.add_parser(
        "fashion-mnist",
        help="Table 2 and the appendix: ten groups of clothing images, a CNN",
        description=(
            "Table 2, the appendix table and the appendix figure of Papadaki et al. 2021: test "
            "Brier risk by group on FashionMNIST, next to the paper's numbers. Interrupt it at "
            "any time and run the same command again to continue; several calls share the work."
        ),
        epilog="example: fedminmax reproduce fashion-mnist --rows 6000 --follow --budget 2h",
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="400 rows, a smaller model, larger steps, one fold")
    add_folder_options(parser, "runs/fashion-mnist")
    add(
        "--data-dir",
        type=Path,
        metavar="FOLDER",
        help="where the four files are, or where to download them",
    )
    add(
        "--methods",
        type=NameList(FASHION_METHODS),
        metavar="LIST",
        help=f"of {','.join(FASHION_METHODS)}",
    )
    add(
        "--settings",
        type=NameList(FASHION_SETTINGS),
        metavar="LIST",
        help=f"of {','.join(FASHION_SETTINGS)}",
    )
    add(
        "--follow",
        action="store_true",
        help="run FedMinMax only in the first setting; check that the others follow (Lemma 2)",
    )
    add("--folds", type=positive_int, metavar="N", help="number of folds (3; quick: 1)")
    add("--rows", type=positive_int, metavar="N", help="training rows (60000; quick: 400)")
    add(
        "--channels",
        type=channel_pair,
        metavar="N,N",
        help="of the two convolutions; not in the paper (16,32; quick: 8,16)",
    )
    add(
        "--rounds",
        type=positive_int,
        metavar="N",
        help="rounds of AFL, FedMinMax, Centralized; not in the paper (1500; quick: 150)",
    )
    add(
        "--local-rounds",
        type=positive_int,
        metavar="N",
        help="rounds of FedAvg, each of several local epochs (50; quick: 5)",
    )
    add(
        "--fast-rounds",
        type=positive_int,
        metavar="N",
        help="rounds of the fast methods; validation rows choose the best (100; quick: 40)",
    )
    add("--learning-rate", type=positive, metavar="X", help="eta_theta (0.1; quick: 0.5)")
    add_training_options(parser, sites="40; quick: 20")
    parser.set_defaults(run=_run_fashion)


def _run_fashion(options: argparse.Namespace) -> None:
    from fedminmax.cli.commands.reproduce import reproduce_fashion
    from fedminmax.cli.commands.run_study import Call
    from fedminmax.studies.fashion import FashionConfig
    from fedminmax.studies.study import Length, Selection

    defaults = FASHION_QUICK if options.quick else FASHION_FULL
    config = FashionConfig(
        rows=options.rows or defaults.rows,
        sites=options.sites or defaults.sites,
        channels=options.channels or defaults.channels,
        learning_rate=options.learning_rate or defaults.learning_rate,
        adversary_rate=options.adversary_rate,
        epsilon=options.epsilon,
        epochs=options.epochs or defaults.epochs,
        batch_size=options.batch_size or defaults.batch_size,
        seed=options.seed,
        device=options.device,
    )
    methods = options.methods or list(FASHION_METHODS)
    settings = options.settings or list(FASHION_SETTINGS)
    if "centralized" in methods:
        settings = [*settings, "centralized"]
    folds = list(range(options.folds or defaults.folds))
    name = "fashion-mnist-quick" if options.quick else "fashion-mnist"
    call = Call(
        options.out or Path("runs", name),
        options.budget,
        as_json=options.json,
        status_only=options.status,
    )
    reproduce_fashion(
        config,
        Selection(
            settings,
            methods,
            folds,
            Length(
                options.rounds or defaults.rounds,
                options.local_rounds or defaults.local_rounds,
                options.fast_rounds or defaults.fast_rounds,
            ),
        ),
        call,
        data_dir=options.data_dir,
        follow=options.follow,
        quick=options.quick,
    )
