"""`fedminmax compare`: any methods side by side on a built-in data set.

The data sets (synthetic, adult) share most options; each has its own defaults.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedminmax.cli.options import (
    Commands,
    add_command,
    add_options,
    names_of,
    positive,
    positive_int,
    whole_number,
)

if TYPE_CHECKING:
    from fedminmax.studies.study import StudyConfig

RESUMABLE = "Interrupt it at any time; run the same command again to continue."
SETTINGS = ("ESG", "SSG", "PSG", "centralized")


@dataclass(frozen=True, kw_only=True)
class Defaults:
    """A data set's default options; None means each method's own default."""

    rounds: int
    local_rounds: int
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
        type=names_of(SETTINGS),
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
        "--sums-only",
        action="store_true",
        help="refuse methods that need more than sums over all sites",
    )
    add("--seed", type=whole_number, default=0, metavar="N", help="of all randomness (0)")
    add_options(parser, "--device")
    add_folder_options(parser, f"runs/compare-{name}")


def add_folder_options(parser: argparse.ArgumentParser, folder: str) -> None:
    """Add the options for the output folder and for how much work one call does."""
    add = parser.add_argument
    add("--out", type=Path, metavar="FOLDER", help=f"results and checkpoints ({folder})")
    add("--status", action="store_true", help="show finished and remaining runs, and exit")
    add_options(parser, "--budget", "--json")


def add_to(commands: Commands) -> None:
    """Add the command and its data sets."""
    compare = add_command(
        commands,
        "compare",
        short="run any methods side by side on a built-in data set",
        text="Run any methods side by side on a built-in data set.",
        example="compare synthetic --methods fedminmax,qfedavg:q=5,group-term",
    )
    data_sets = compare.add_subparsers(
        dest="data", title="data sets", metavar="DATA", required=True
    )
    _add_synthetic(data_sets)
    _add_adult(data_sets)


def _add_synthetic(data_sets: Commands) -> None:
    parser = add_command(
        data_sets,
        "synthetic",
        _run_synthetic,
        short="the paper's two groups, one feature, an analytic optimum",
        text=f"Compare methods on the paper's synthetic data. {RESUMABLE}",
        example="compare synthetic --methods fedminmax,fedavg --seeds 3",
    )
    add_shared(parser, "synthetic", Defaults(rounds=1000, local_rounds=20))
    add_rows(parser)
    parser.add_argument(
        "--model",
        choices=("mlp", "sides"),
        default="sides",
        help="the paper's network, or a linear model of the side of 0 that x is on (sides)",
    )


def add_rows(parser: argparse.ArgumentParser) -> None:
    """Add the number of training rows, for data sets that are generated or subsampled."""
    rows = 6000
    parser.add_argument(
        "--rows", type=positive_int, default=rows, metavar="N", help=f"training rows ({rows})"
    )


def _run_synthetic(options: argparse.Namespace) -> None:
    from fedminmax.cli.comparison import compare
    from fedminmax.studies.study import synthetic_study

    widths = (512, 512, 512, 512) if options.model == "mlp" else ()
    compare("synthetic", synthetic_study(config_of(options, options.model, widths)), options)


def config_of(
    options: argparse.Namespace, model: str, widths: tuple[int, ...] = ()
) -> "StudyConfig":
    """Return the configuration of a study that the options set."""
    from fedminmax.studies.study import StudyConfig

    return StudyConfig(
        options.rows,
        options.sites,
        model=model,
        widths=widths,
        loss=getattr(options, "loss", "brier"),
        include_protected=getattr(options, "include_protected", False),
        seed=options.seed,
        device=options.device,
    )


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
# Methods that converge in seconds, where every site has the same mix of groups.
QUICK = Defaults(
    rounds=300, local_rounds=30, methods="fedminmax-fast,fedavg-fast,afl-fast", settings=("ESG",)
)
QUICK_DECIDES = ("rounds", "local_rounds", "methods", "settings")


def _add_adult(data_sets: Commands) -> None:
    parser = add_command(
        data_sets,
        "adult",
        _run_adult,
        short="census incomes, ten groups by sex and race, a logistic model",
        text="Compare methods on Adult (Census Income), which comes with the package: all 32,561 "
        f"training rows, a logistic model, groups by sex and race. {RESUMABLE}",
        example="compare adult --quick",
    )
    add_shared(parser, "adult", FULL)
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"three methods that converge in seconds ({QUICK.methods}), one setting "
        f"({QUICK.settings[0]}), at most {QUICK.rounds} rounds; without it a call goes on there",
    )
    parser.add_argument(
        "--loss",
        choices=("brier", "cross_entropy"),
        default="brier",
        help="what training minimises; tables show the Brier score (brier)",
    )
    parser.add_argument(
        "--include-protected", action="store_true", help="let the model see sex and race"
    )
    # None means that the user gave no value; --quick then decides.
    parser.set_defaults(**dict.fromkeys(QUICK_DECIDES))


def _run_adult(options: argparse.Namespace) -> None:
    from fedminmax.cli.comparison import compare
    from fedminmax.data.adult import load_adult
    from fedminmax.studies.study import adult_study

    data = load_adult(include_protected=options.include_protected)
    usual = QUICK if options.quick else FULL
    options.rows = len(data.train)
    for name in QUICK_DECIDES:
        if getattr(options, name) is None:
            setattr(options, name, getattr(usual, name))
    compare("adult", adult_study(config_of(options, "linear"), data), options)
