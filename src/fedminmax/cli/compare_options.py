"""The words of `fedminmax compare`: any methods side by side on a built-in data set."""

import argparse
from pathlib import Path
from typing import Any

from fedminmax.cli import compare_adult_options
from fedminmax.cli.compare_shared_options import Defaults, add_rows, add_shared
from fedminmax.cli.option_types import channel_pair


def add_to(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add `compare` and its data sets to the command line."""
    compare = commands.add_parser(
        "compare",
        help="run any methods side by side on a built-in data set",
        description="Run any methods side by side on a built-in data set.",
        epilog="example: fedminmax compare synthetic --methods fedminmax,qfedavg:q=5,group-term",
    )
    data_sets = compare.add_subparsers(
        dest="data", title="data sets", metavar="DATA", required=True
    )
    synthetic = data_sets.add_parser(
        "synthetic",
        help="the paper's two groups, one feature, an analytic optimum",
        description="Compare methods on the paper's synthetic data. Interrupt it at any time; "
        "the same command goes on.",
    )
    add_shared(synthetic, "synthetic", Defaults(rounds=1000, local_rounds=20))
    add_rows(synthetic, 6000)
    synthetic.add_argument(
        "--model",
        choices=("mlp", "sides"),
        default="sides",
        help="the paper's network, or a linear model of the side of 0 that x is on (sides)",
    )
    synthetic.set_defaults(run=_run_synthetic)
    fashion = data_sets.add_parser(
        "fashion-mnist",
        help="ten groups of images",
        description="Compare methods on FashionMNIST. Interrupt it at any time; the same command "
        "goes on.",
    )
    add_shared(fashion, "fashion-mnist", Defaults(rounds=1500, local_rounds=40))
    add_rows(fashion, 6000)
    fashion.add_argument("--channels", type=channel_pair, default=(16, 32), metavar="A,B")
    fashion.add_argument("--data-dir", type=Path, metavar="FOLDER", help="where the files are")
    fashion.set_defaults(run=_run_fashion)
    compare_adult_options.add_to(data_sets)


def _run_synthetic(options: argparse.Namespace) -> None:
    from fedminmax.cli.compare import compare
    from fedminmax.studies.synthetic import SyntheticConfig, SyntheticStudy

    config = SyntheticConfig(
        rows=options.rows,
        holders=options.holders,
        model=options.model,
        hidden=(512, 512, 512, 512) if options.model == "mlp" else (),
        # The entries have settings of their own; the study's are not used here.
        learning_rate=0.1,
        adversary_rate=0.1,
        epsilon=0.0,
        epochs=15,
        batch_size=100,
        folds_by="seeds",
        folds_in_all=0,
        seed=options.seed,
        device=options.device,
    )
    compare("synthetic", SyntheticStudy(config), config, options, network=config.network)


def _run_fashion(options: argparse.Namespace) -> None:
    from fedminmax.cli.compare import compare
    from fedminmax.cli.fetch_fashion import fashion_mnist
    from fedminmax.studies.fashion_mnist import FashionConfig, FashionStudy

    config = FashionConfig(
        rows=options.rows,
        holders=options.holders,
        channels=options.channels,
        # The entries have settings of their own; the study's are not used here.
        learning_rate=0.1,
        adversary_rate=0.1,
        epsilon=0.0,
        epochs=15,
        batch_size=100,
        seed=options.seed,
        device=options.device,
    )
    study = FashionStudy(config, fashion_mnist(options.data_dir))
    compare("fashion-mnist", study, config, options, network=True)
