"""The options of `fedminmax compare`: any methods side by side on a built-in data set.

The data sets (synthetic, fashion-mnist, adult) share most options; each has its own defaults.
"""

import argparse
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

from fedminmax.cli.arguments.reproduce import add_folder_options
from fedminmax.cli.arguments.types import (
    NameList,
    channel_pair,
    positive,
    positive_int,
    whole_number,
)

SETTINGS = ("ESG", "SSG", "PSG", "centralized")


@dataclass(frozen=True)
class Defaults:
    """A data set's default options; None means each method's own default."""

    rounds: int
    local_rounds: int
    _: KW_ONLY
    fast_rounds: int = 100
    methods: str = "fedminmax-fast,fedminmax,fedavg,afl,qfedavg:q=5"
    settings: tuple[str, ...] = ("ESG", "SSG")
    learning_rate: float | None = None
    epochs: int | None = None
    batch_size: int | None = None


def add_shared(parser: argparse.ArgumentParser, name: str, defaults: Defaults) -> None:
    """Add methods, settings, lengths, rates and folder options."""
    add = parser.add_argument
    add(
        "--methods",
        default=defaults.methods,
        metavar="LIST",
        help=f"names with options, or all ({defaults.methods}); name@setting runs only in that "
        "setting; see 'fedminmax methods'",
    )
    add(
        "--settings",
        type=NameList(SETTINGS),
        default=list(defaults.settings),
        metavar="LIST",
        help=f"of {','.join(SETTINGS)} ({','.join(defaults.settings)})",
    )
    add("--seeds", type=positive_int, default=1, metavar="N", help="number of seeds (1)")
    for option, number, what in (
        ("rounds", defaults.rounds, "rounds of methods with one step per round"),
        ("local-rounds", defaults.local_rounds, "rounds of methods with local epochs"),
        ("fast-rounds", defaults.fast_rounds, "maximum rounds of fast methods"),
    ):
        add(
            f"--{option}",
            type=positive_int,
            default=number,
            metavar="N",
            help=f"{what} ({number})",
        )
    add("--sites", type=positive_int, default=40, metavar="N", help="number of sites (40)")
    for option, kind, value in (
        ("learning-rate", positive, defaults.learning_rate),
        ("adversary-rate", positive, None),
        ("epochs", positive_int, defaults.epochs),
        ("batch-size", positive_int, defaults.batch_size),
    ):
        usual = "each method's own default" if value is None else f"{value:g}"
        add(
            f"--{option}",
            type=kind,
            default=value,
            metavar="X",
            help=f"for every method that has one ({usual})",
        )
    add(
        "--secure-aggregation",
        action="store_true",
        help="refuse methods that need more than sums over all sites",
    )
    add("--seed", type=whole_number, default=0, metavar="N", help="of all randomness (0)")
    add("--device", default="cpu", metavar="NAME", help="cpu, cuda, cuda:1, mps, ... (cpu)")
    add_folder_options(parser, f"runs/compare-{name}")


def add_rows(parser: argparse.ArgumentParser, rows: int) -> None:
    """Add the number of training rows, for data sets that are generated or subsampled."""
    parser.add_argument(
        "--rows", type=positive_int, default=rows, metavar="N", help=f"training rows ({rows})"
    )


def add_compare(commands: "argparse._SubParsersAction[Any]") -> None:
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
        "run the same command again to continue.",
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
        description="Compare methods on FashionMNIST. Interrupt it at any time; run the same "
        "command again to continue.",
    )
    add_shared(fashion, "fashion-mnist", Defaults(rounds=1500, local_rounds=40))
    add_rows(fashion, 6000)
    fashion.add_argument("--channels", type=channel_pair, default=(16, 32), metavar="A,B")
    fashion.add_argument("--data-dir", type=Path, metavar="FOLDER", help="where the files are")
    fashion.set_defaults(run=_run_fashion)
    add_adult(data_sets)


def _run_synthetic(options: argparse.Namespace) -> None:
    from fedminmax.cli.commands.compare import compare
    from fedminmax.studies.synthetic import SyntheticConfig, SyntheticStudy

    config = SyntheticConfig(
        rows=options.rows,
        sites=options.sites,
        model=options.model,
        hidden=(512, 512, 512, 512) if options.model == "mlp" else (),
        # Each entry has its own settings; the study's are not used here.
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
    from fedminmax.cli.commands.compare import compare
    from fedminmax.cli.commands.run_study import fashion_mnist
    from fedminmax.studies.fashion import FashionConfig, FashionStudy

    config = FashionConfig(
        rows=options.rows,
        sites=options.sites,
        channels=options.channels,
        # Each entry has its own settings; the study's are not used here.
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


# How rates, epochs and rounds were chosen is in experiments/adult/README.md.
FULL = Defaults(
    rounds=1500,
    local_rounds=100,
    methods="fedminmax-fast,fedminmax,fedavg,afl,qfedavg:q=0.2,qfedavg:q=5,fedminmax@centralized",
    settings=("ESG", "SSG", "PSG"),
    learning_rate=1.0,
    epochs=1,
    batch_size=400,
)
QUICK = Defaults(rounds=300, local_rounds=30)


def add_adult(data_sets: "argparse._SubParsersAction[Any]") -> None:
    """Add the data set to the command line."""
    parser = data_sets.add_parser(
        "adult",
        help="census incomes, ten groups by sex and race, a logistic model",
        description="Compare methods on Adult (Census Income), which comes with the package: all "
        "32,561 training rows, a logistic model, groups by sex and race. Interrupt it at any time; "
        "run the same command again to continue.",
        epilog="example: fedminmax compare adult --quick",
    )
    add_shared(parser, "adult", FULL)
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"{QUICK.rounds} rounds, {QUICK.local_rounds} with local epochs; a later call without "
        "it continues from there",
    )
    parser.add_argument(
        "--loss",
        choices=("brier", "cross_entropy"),
        default="brier",
        help="what training minimises; tables show Brier risk (brier)",
    )
    parser.add_argument(
        "--include-protected", action="store_true", help="let the model see sex and race"
    )
    # None means that the user gave no value; --quick then decides.
    parser.set_defaults(run=_run, rounds=None, local_rounds=None)


def _run(options: argparse.Namespace) -> None:
    from fedminmax.cli.commands.compare import compare
    from fedminmax.data.adult import load_adult
    from fedminmax.studies.adult import AdultConfig, AdultStudy

    config = AdultConfig(
        sites=options.sites,
        include_protected=options.include_protected,
        loss=options.loss,
        seed=options.seed,
        device=options.device,
    )
    data = load_adult(include_protected=config.include_protected)
    usual = QUICK if options.quick else FULL
    chosen = {
        "rows": len(data.train),
        "rounds": options.rounds or usual.rounds,
        "local_rounds": options.local_rounds or usual.local_rounds,
    }
    decided = argparse.Namespace(**(vars(options) | chosen))
    compare("adult", AdultStudy(config, data), config, decided, network=False)
