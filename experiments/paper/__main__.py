"""The paper's experiments on synthetic data and FashionMNIST, from a clone of the repository.

usage: python -m experiments.paper synthetic --quick
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.paper.fashion import fashion_study
from experiments.paper.fashion_mnist import fashion_mnist
from experiments.paper.plans import PaperSettings, Selection
from experiments.paper.tables import reproduce_fashion, reproduce_synthetic
from fedminmax.cli import compare
from fedminmax.cli.comparison import Call
from fedminmax.cli.comparison import compare as compare_methods
from fedminmax.cli.main import OneLineParser, run_command
from fedminmax.cli.options import (
    Commands,
    names_of,
    not_negative,
    positive,
    positive_int,
    whole_number,
)
from fedminmax.core.errors import InputError
from fedminmax.studies.study import Length, StudyConfig

PROGRAM = "python -m experiments.paper"
FAST_METHODS = ("afl-fast", "fedavg-fast", "fedminmax-fast")
SYNTHETIC_METHODS = (
    *("afl", "fedavg", "q-fedavg-0.2", "q-fedavg-5", "fedminmax"),
    *(*FAST_METHODS, "centralized"),
)
FASHION_METHODS = ("afl", "fedavg", "fedminmax", *FAST_METHODS, "centralized")


@dataclass(frozen=True, kw_only=True)
class Defaults:
    """The values of options that the user did not give."""

    rows: int
    rounds: int
    local_rounds: int
    fast_rounds: int
    learning_rate: float
    methods: tuple[str, ...]
    sites: int = 40
    folds: int = 3
    epochs: int = 15
    batch_size: int = 100
    model: str = "mlp"
    hidden: tuple[int, ...] = ()
    channels: tuple[int, int] = (16, 32)


SYNTHETIC = Defaults(
    rows=6000,
    rounds=1000,
    local_rounds=20,
    fast_rounds=100,
    hidden=(512, 512, 512, 512),
    learning_rate=0.1,
    methods=SYNTHETIC_METHODS,
)
# A minimax over sites needs thousands of rows at each site to match the population's, and only
# a linear model makes this many rows cheap. Sites take one step on all their rows.
SYNTHETIC_QUICK = Defaults(
    rows=200_000,
    rounds=200,
    local_rounds=30,
    fast_rounds=15,
    model="sides",
    hidden=(64, 64),
    learning_rate=1.0,
    folds=1,
    epochs=1,
    batch_size=10_000,
    methods=("fedavg", "q-fedavg-5", "fedminmax", "afl-fast", "fedminmax-fast"),
)
FASHION = Defaults(
    rows=60_000,
    rounds=1500,
    local_rounds=50,
    fast_rounds=100,
    learning_rate=0.1,
    methods=FASHION_METHODS,
)
FASHION_QUICK = Defaults(
    rows=400,
    sites=20,
    rounds=150,
    local_rounds=5,
    fast_rounds=40,
    channels=(8, 16),
    learning_rate=0.5,
    folds=1,
    methods=FASHION_METHODS,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run an experiment and return the exit code."""
    return run_command(build_parser().parse_args(arguments))


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of all experiments."""
    parser = OneLineParser(
        prog=PROGRAM,
        description="Run an experiment of the paper and print its table next to ours.",
        epilog=f"example: {PROGRAM} synthetic --quick",
    )
    experiments = parser.add_subparsers(
        dest="experiment", title="experiments", metavar="EXPERIMENT", required=True
    )
    _add_synthetic(experiments)
    _add_fashion(experiments)
    _add_compare(experiments)
    return parser


def _add(
    experiments: Commands,
    name: str,
    run: Callable[[argparse.Namespace], None],
    *,
    short: str,
    text: str,
    example: str,
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = experiments.add_parser(
        name, help=short, description=text, epilog=f"example: {PROGRAM} {name} {example}"
    )
    parser.set_defaults(run=run)
    return parser


def _add_shared(
    parser: argparse.ArgumentParser,
    full: Defaults,
    quick: Defaults,
    settings: tuple[str, ...],
    texts: dict[str, str],
) -> None:
    """Add methods, settings, and the hyperparameters of the paper's Table 3.

    ``texts`` describe options, by name, where the experiments differ.
    """
    parser.set_defaults(full=full, short=quick, all_settings=settings)

    def add(name: str, kind: Any, metavar: str, text: str) -> None:
        """Add an option whose default may depend on --quick, and is said behind its text."""
        value, other = (_shown(getattr(defaults, name)) for defaults in (full, quick))
        usual = value if value == other else f"{value}; quick: {other}"
        option, text = f"--{name.replace('_', '-')}", texts.get(name, text)
        parser.add_argument(option, type=kind, metavar=metavar, help=f"{text} ({usual})")

    for name, choices in (("--methods", full.methods), ("--settings", settings)):
        text = f"of {','.join(choices)}"
        parser.add_argument(name, type=names_of(choices), metavar="LIST", help=text)
    add("folds", positive_int, "N", "number of folds")
    add("rows", positive_int, "N", "training rows")
    add("rounds", positive_int, "N", "rounds of AFL, FedMinMax, Centralized")
    add("local_rounds", positive_int, "N", "rounds of FedAvg, each of several local epochs")
    add("fast_rounds", positive_int, "N", "rounds of the fast methods")
    add("learning_rate", positive, "X", "eta_theta")
    add("sites", positive_int, "N", "number of sites")
    add("epochs", positive_int, "N", "local epochs E")
    add("batch_size", positive_int, "N", "local batch")
    for option, kind, default, metavar, text in (
        ("--seed", whole_number, 0, "N", "of all randomness (0)"),
        ("--adversary-rate", positive, 0.1, "X", "eta_mu, eta_lambda (0.1)"),
        ("--min-weight", not_negative, 0.0, "X", "FedMinMax's floor (0)"),
        ("--device", str, "cpu", "NAME", "cpu, cuda, cuda:1, mps, ... (cpu)"),
    ):
        parser.add_argument(option, type=kind, default=default, metavar=metavar, help=text)


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _add_synthetic(experiments: Commands) -> None:
    parser = _add(
        experiments,
        "synthetic",
        _run_synthetic,
        short="Table 1: two groups, one feature, an analytic optimum",
        text="Table 1 of Papadaki et al. 2021: worst- and best-group Brier score on the synthetic "
        "data, next to the paper's numbers and the analytic optimum. Interrupt it at any time; run "
        "the same command again to continue.",
        example="--settings ESG --methods fedavg,fedminmax",
    )
    add = parser.add_argument
    add(
        "--quick",
        action="store_true",
        help="a linear model of the side of 0, 200000 rows, one fold",
    )
    compare.add_folder_options(parser, "runs/synthetic")
    texts = {
        "local_rounds": "rounds of FedAvg and q-FedAvg, each of several local epochs",
        "fast_rounds": "maximum rounds of the fast methods, of which validation rows choose the "
        "best; with --model sides the method stops when it has converged",
    }
    _add_shared(parser, SYNTHETIC, SYNTHETIC_QUICK, ("ESG", "SSG"), texts)
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


def _add_fashion(experiments: Commands) -> None:
    parser = _add(
        experiments,
        "fashion-mnist",
        _run_fashion,
        short="Table 2 and the appendix: ten groups of clothing images, a CNN",
        text="Table 2, the appendix table and the appendix figure of Papadaki et al. 2021: test "
        "Brier score by group on FashionMNIST, next to the paper's numbers. Interrupt it at any "
        "time and run the same command again to continue; several calls share the work.",
        example="--rows 6000 --reuse-lemma2 --budget 2h",
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="400 rows, a smaller model, larger steps, one fold")
    compare.add_folder_options(parser, "runs/fashion-mnist")
    add(
        "--data-dir",
        type=Path,
        metavar="FOLDER",
        help="where the four files are, or where to download them",
    )
    texts = {
        "rounds": "rounds of AFL, FedMinMax, Centralized; not in the paper",
        "fast_rounds": "rounds of the fast methods; validation rows choose the best",
    }
    _add_shared(parser, FASHION, FASHION_QUICK, ("ESG", "SSG", "PSG"), texts)
    add(
        "--reuse-lemma2",
        action="store_true",
        help="run FedMinMax only in the first setting; check that the others follow (Lemma 2)",
    )
    add(
        "--channels",
        type=_channel_pair,
        metavar="N,N",
        help="of the two convolutions; not in the paper (16,32; quick: 8,16)",
    )


def _channel_pair(text: str) -> tuple[int, int]:
    """Parse two positive whole numbers such as 16,32."""
    parts = text.split(",")
    if len(parts) != 2:
        raise argparse.ArgumentTypeError(f"'{text}' is not two numbers such as 16,32")
    return positive_int(parts[0]), positive_int(parts[1])


def _add_compare(experiments: Commands) -> None:
    parser = _add(
        experiments,
        "compare-fashion-mnist",
        _run_compare,
        short="any methods side by side on the images, as in 'fedminmax compare'",
        text=f"Compare methods on FashionMNIST. {compare.RESUMABLE}",
        example="--methods fedminmax,fedavg --rounds 100",
    )
    defaults = compare.Defaults(rounds=1500, local_rounds=40)
    compare.add_shared(parser, "fashion-mnist", defaults)
    compare.add_rows(parser)
    parser.add_argument("--channels", type=_channel_pair, default=(16, 32), metavar="A,B")
    parser.add_argument("--data-dir", type=Path, metavar="FOLDER", help="where the files are")


def _run_compare(options: argparse.Namespace) -> None:
    config = compare.config_of(options, "cnn", options.channels)
    study = fashion_study(config, fashion_mnist(options.data_dir))
    compare_methods("fashion-mnist", study, options)


def _with_defaults(options: argparse.Namespace) -> Defaults:
    """Return the values of all options, given or not."""
    usual = options.short if options.quick else options.full
    given = {name: getattr(options, name, None) for name in vars(usual)}
    return Defaults(**{name: value or getattr(usual, name) for name, value in given.items()})


def _call(options: argparse.Namespace, chosen: Defaults) -> tuple[Selection, Call]:
    """Return which runs to do, and where."""
    methods, settings = list(chosen.methods), options.settings or list(options.all_settings)
    if "centralized" in methods:
        settings = [*settings, "centralized"]
    length = Length(chosen.rounds, chosen.local_rounds, chosen.fast_rounds)
    name = f"{options.experiment}-quick" if options.quick else options.experiment
    folder = options.out or Path("runs", name)
    return Selection(settings, methods, list(range(chosen.folds)), length), Call(
        folder, options.budget, as_json=options.json, status_only=options.status
    )


def _settings(options: argparse.Namespace, chosen: Defaults) -> PaperSettings:
    return PaperSettings(
        chosen.learning_rate,
        options.adversary_rate,
        options.min_weight,
        chosen.epochs,
        chosen.batch_size,
    )


def _run_synthetic(options: argparse.Namespace) -> None:
    cross_validation = options.folds_by == "cross_validation"
    if cross_validation:
        options.folds = options.folds or SYNTHETIC.folds
    chosen = _with_defaults(options)
    if cross_validation and chosen.folds < 2:
        raise InputError("cross-validation with 1 fold leaves no rows; give --folds 2 or more")
    config = StudyConfig(
        rows=chosen.rows,
        sites=chosen.sites,
        model=chosen.model,
        widths=chosen.hidden if chosen.model == "mlp" else (),
        folds_by=options.folds_by,
        # With seeds, folds are independent: later calls may add folds to the same folder.
        folds_in_all=chosen.folds if cross_validation else 0,
        seed=options.seed,
        device=options.device,
    )
    settings = _settings(options, chosen)
    reproduce_synthetic(config, settings, *_call(options, chosen), quick=options.quick)


def _run_fashion(options: argparse.Namespace) -> None:
    chosen = _with_defaults(options)
    config = StudyConfig(
        rows=chosen.rows,
        sites=chosen.sites,
        model="cnn",
        widths=chosen.channels,
        seed=options.seed,
        device=options.device,
    )
    reproduce_fashion(
        config,
        _settings(options, chosen),
        *_call(options, chosen),
        data_dir=options.data_dir,
        reuse_lemma2=options.reuse_lemma2,
        quick=options.quick,
    )


if __name__ == "__main__":
    sys.exit(main())
