"""The words of `fedminmax reproduce fashion-mnist`."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedminmax.cli.option_types import NameList, channel_pair, positive, positive_int
from fedminmax.cli.study_options import add_folder_options, add_training_options

METHODS = (
    *("afl", "fedavg", "fedminmax"),
    *("afl-fast", "fedavg-fast", "fedminmax-fast"),
    "centralized",
)
SETTINGS = ("ESG", "SSG", "PSG")


@dataclass(frozen=True)
class Defaults:
    """What a call takes where the user gave no word."""

    rows: int
    holders: int
    rounds: int
    local_rounds: int
    fast_rounds: int
    channels: tuple[int, int]
    learning_rate: float
    folds: int
    epochs: int = 15
    batch_size: int = 100


FULL = Defaults(
    rows=60_000,
    holders=40,
    rounds=1500,
    local_rounds=50,
    fast_rounds=100,
    channels=(16, 32),
    learning_rate=0.1,
    folds=3,
)
QUICK = Defaults(
    rows=400,
    holders=20,
    rounds=150,
    local_rounds=5,
    fast_rounds=40,
    channels=(8, 16),
    learning_rate=0.5,
    folds=1,
)


def add_to(experiments: "argparse._SubParsersAction[Any]") -> None:
    """Add the experiment to the command line."""
    parser = experiments.add_parser(
        "fashion-mnist",
        help="Table 2 and the appendix: ten groups of clothing images, a CNN",
        description=(
            "Table 2, the appendix table and the appendix figure of Papadaki et al. 2021: test "
            "Brier risk by group on FashionMNIST, next to the paper's numbers. Interrupt it at "
            "any time; the same command goes on, and several calls share the work."
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
        help="where the four files are, or shall be downloaded to",
    )
    add("--methods", type=NameList(METHODS), metavar="LIST", help=f"of {','.join(METHODS)}")
    add("--settings", type=NameList(SETTINGS), metavar="LIST", help=f"of {','.join(SETTINGS)}")
    add(
        "--follow",
        action="store_true",
        help="run FedMinMax in the first setting alone; check that the others follow (Lemma 2)",
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
        help="rounds of the fast methods, one of which validation rows choose (100; quick: 40)",
    )
    add("--learning-rate", type=positive, metavar="X", help="eta_theta (0.1; quick: 0.5)")
    add_training_options(parser, holders="40; quick: 20")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> None:
    from fedminmax.cli.reproduce_fashion import reproduce_fashion
    from fedminmax.cli.run_study import Call
    from fedminmax.studies.fashion_mnist import FashionConfig
    from fedminmax.studies.study import Length, Selection

    defaults = QUICK if options.quick else FULL
    config = FashionConfig(
        rows=options.rows or defaults.rows,
        holders=options.holders or defaults.holders,
        channels=options.channels or defaults.channels,
        learning_rate=options.learning_rate or defaults.learning_rate,
        adversary_rate=options.adversary_rate,
        epsilon=options.epsilon,
        epochs=options.epochs or defaults.epochs,
        batch_size=options.batch_size or defaults.batch_size,
        seed=options.seed,
        device=options.device,
    )
    methods = options.methods or list(METHODS)
    settings = options.settings or list(SETTINGS)
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
