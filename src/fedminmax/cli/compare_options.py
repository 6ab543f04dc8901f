"""The words of `fedminmax compare`: any methods side by side on a built-in data set."""

import argparse
from pathlib import Path
from typing import Any

from fedminmax.cli.option_types import NameList, channel_pair, positive, positive_int, whole_number
from fedminmax.cli.study_options import add_folder_options

DEFAULT_METHODS = "fedminmax,fedavg,afl,qfedavg:q=5"
SETTINGS = ("ESG", "SSG", "PSG", "centralized")
DEFAULT_SETTINGS = ["ESG", "SSG"]
SYNTHETIC = {"rows": 6000, "rounds": 1000, "local_rounds": 20}
FASHION = {"rows": 6000, "rounds": 1500, "local_rounds": 40}


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
    _add_common(synthetic, "synthetic", SYNTHETIC)
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
    _add_common(fashion, "fashion-mnist", FASHION)
    fashion.add_argument("--channels", type=channel_pair, default=(16, 32), metavar="A,B")
    fashion.add_argument("--data-dir", type=Path, metavar="FOLDER", help="where the files are")
    fashion.set_defaults(run=_run_fashion)


def _add_common(parser: argparse.ArgumentParser, name: str, defaults: dict[str, int]) -> None:
    add = parser.add_argument
    add(
        "--methods",
        default=DEFAULT_METHODS,
        metavar="LIST",
        help=f"names with options, or all ({DEFAULT_METHODS}); see 'fedminmax methods'",
    )
    add(
        "--settings",
        type=NameList(SETTINGS),
        default=DEFAULT_SETTINGS,
        metavar="LIST",
        help=f"of {','.join(SETTINGS)} ({','.join(DEFAULT_SETTINGS)})",
    )
    add("--seeds", type=positive_int, default=1, metavar="N", help="number of seeds (1)")
    for option, what in (
        ("rows", "training rows"),
        ("rounds", "rounds of methods with one step per round"),
        ("local_rounds", "rounds of methods with local epochs"),
    ):
        add(
            f"--{option.replace('_', '-')}",
            type=positive_int,
            default=defaults[option],
            metavar="N",
            help=f"{what} ({defaults[option]})",
        )
    add("--holders", type=positive_int, default=40, metavar="N", help="number of holders (40)")
    add("--learning-rate", type=positive, default=0.1, metavar="X", help="of all methods (0.1)")
    add(
        "--adversary-rate",
        type=positive,
        default=0.1,
        metavar="X",
        help="of methods with an adversary (0.1)",
    )
    add("--epochs", type=positive_int, default=15, metavar="N", help="local epochs (15)")
    add("--batch-size", type=positive_int, default=100, metavar="N", help="local batch (100)")
    add(
        "--secure-sums",
        action="store_true",
        help="refuse methods that need more than sums over all holders",
    )
    add("--seed", type=whole_number, default=0, metavar="N", help="of all randomness (0)")
    add("--device", default="cpu", metavar="NAME", help="cpu, cuda, cuda:1, mps, ... (cpu)")
    add_folder_options(parser, f"runs/compare-{name}")


def _run_synthetic(options: argparse.Namespace) -> None:
    from fedminmax.cli.compare import compare
    from fedminmax.studies.synthetic import SyntheticConfig, SyntheticStudy

    config = SyntheticConfig(
        rows=options.rows,
        holders=options.holders,
        model=options.model,
        hidden=(512, 512, 512, 512) if options.model == "mlp" else (),
        learning_rate=options.learning_rate,
        adversary_rate=options.adversary_rate,
        epsilon=0.0,
        epochs=options.epochs,
        batch_size=options.batch_size,
        folds_by="seeds",
        folds_in_all=0,
        seed=options.seed,
        device=options.device,
    )
    compare("synthetic", SyntheticStudy(config), config, options)


def _run_fashion(options: argparse.Namespace) -> None:
    from fedminmax.cli.compare import compare
    from fedminmax.cli.fetch_fashion import fashion_mnist
    from fedminmax.studies.fashion_mnist import FashionConfig, FashionStudy

    config = FashionConfig(
        rows=options.rows,
        holders=options.holders,
        channels=options.channels,
        learning_rate=options.learning_rate,
        adversary_rate=options.adversary_rate,
        epsilon=0.0,
        epochs=options.epochs,
        batch_size=options.batch_size,
        seed=options.seed,
        device=options.device,
    )
    study = FashionStudy(config, fashion_mnist(options.data_dir))
    compare("fashion-mnist", study, config, options)
