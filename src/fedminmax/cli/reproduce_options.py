"""The words of `fedminmax reproduce`: options, their checks and defaults, no heavy import."""

import argparse
import math
from pathlib import Path
from typing import Any, TypeVar

NumberT = TypeVar("NumberT", int, float)

METHODS = ("afl", "fedavg", "q-fedavg-0.2", "q-fedavg-5", "fedminmax", "centralized")
SETTINGS = ("ESG", "SSG")
FULL = {"rows": 6000, "rounds": 1000, "local_rounds": 20, "hidden": (512, 512, 512, 512)}
QUICK = {"rows": 2000, "rounds": 300, "local_rounds": 15, "hidden": (64, 64)}


def add_to(commands: "argparse._SubParsersAction[Any]") -> None:
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
    _add_synthetic(experiments)


def _add_synthetic(experiments: "argparse._SubParsersAction[Any]") -> None:
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
    add("--quick", action="store_true", help="a smaller model, fewer rows and rounds, one fold")
    add("--out", type=Path, metavar="FOLDER", help="results and checkpoints (runs/synthetic)")
    add("--methods", type=_NameList(METHODS), metavar="LIST", help=f"of {','.join(METHODS)}")
    add("--settings", type=_NameList(SETTINGS), metavar="LIST", help=f"of {','.join(SETTINGS)}")
    add("--folds", type=_positive_int, metavar="N", help="number of folds (3; quick: 1)")
    add(
        "--folds-by",
        choices=("seeds", "cross-validation"),
        default="seeds",
        help="own rows for each fold, or parts of one training set (seeds)",
    )
    add("--seed", type=_whole_number, default=0, metavar="N", help="of all randomness (0)")
    add(
        "--model",
        choices=("mlp", "sides"),
        default="mlp",
        help="the paper's network, or a linear model of the side of 0 that x is on (mlp)",
    )
    add("--rows", type=_positive_int, metavar="N", help="training rows (6000; quick: 2000)")
    add(
        "--rounds",
        type=_positive_int,
        metavar="N",
        help="rounds of AFL, FedMinMax, Centralized (1000; quick: 300)",
    )
    add(
        "--local-rounds",
        type=_positive_int,
        metavar="N",
        help="rounds of FedAvg and q-FedAvg, each of several local epochs (20; quick: 15)",
    )
    add("--holders", type=_positive_int, default=40, metavar="N", help="number of holders (40)")
    add("--learning-rate", type=_positive, default=0.1, metavar="X", help="eta_theta (0.1)")
    add(
        "--adversary-rate",
        type=_positive,
        default=0.1,
        metavar="X",
        help="eta_mu and eta_lambda (0.1)",
    )
    add("--epsilon", type=_not_negative, default=0.0, metavar="X", help="FedMinMax's floor (0)")
    add("--epochs", type=_positive_int, default=15, metavar="N", help="local epochs E (15)")
    add("--batch-size", type=_positive_int, default=100, metavar="N", help="local batch (100)")
    add("--device", default="cpu", metavar="NAME", help="cpu, cuda, cuda:1, mps, ... (cpu)")
    add("--json", action="store_true", help="print machine-readable results alone on stdout")
    parser.set_defaults(run=_run_synthetic)


def _run_synthetic(options: argparse.Namespace) -> None:
    from fedminmax.cli.reproduce_synthetic import Selection, reproduce_synthetic
    from fedminmax.cli.synthetic_runs import SyntheticConfig
    from fedminmax.core.errors import InputError

    defaults: dict[str, Any] = QUICK if options.quick else FULL
    cross_validation = options.folds_by == "cross-validation"
    folds = options.folds or (1 if options.quick and not cross_validation else 3)
    if cross_validation and folds < 2:
        raise InputError("cross-validation with 1 fold leaves no rows; give --folds 2 or more")
    config = SyntheticConfig(
        rows=options.rows or defaults["rows"],
        rounds=options.rounds or defaults["rounds"],
        local_rounds=options.local_rounds or defaults["local_rounds"],
        holders=options.holders,
        model=options.model,
        hidden=defaults["hidden"] if options.model == "mlp" else (),
        learning_rate=options.learning_rate,
        adversary_rate=options.adversary_rate,
        epsilon=options.epsilon,
        epochs=options.epochs,
        batch_size=options.batch_size,
        folds_by=options.folds_by,
        # By seeds, folds are independent: later calls may add some to the same folder.
        folds_in_all=folds if cross_validation else 0,
        seed=options.seed,
        device=options.device,
    )
    methods = options.methods or list(METHODS)
    settings = options.settings or list(SETTINGS)
    if "centralized" in methods:
        settings = [*settings, "centralized"]
    selection = Selection(settings, methods, list(range(folds)))
    folder = options.out or Path("runs", "synthetic-quick" if options.quick else "synthetic")
    reproduce_synthetic(config, selection, folder, as_json=options.json)


class _NameList:
    """Parse a comma-separated list of known names."""

    def __init__(self, known: tuple[str, ...]) -> None:
        self._known = known

    def __call__(self, words: str) -> list[str]:
        names = [word.strip() for word in words.split(",")]
        for name in names:
            if name not in self._known:
                raise argparse.ArgumentTypeError(
                    f"'{name}' is unknown; choose from {', '.join(self._known)}"
                )
        # The table has an order of its own, and each run once.
        return [name for name in self._known if name in names]


def _positive_int(word: str) -> int:
    return _number(word, int, 1, "a whole number of at least 1")


def _whole_number(word: str) -> int:
    return _number(word, int, 0, "zero or a positive whole number")


def _positive(word: str) -> float:
    smallest = 1e-300
    return _number(word, float, smallest, "a positive number")


def _not_negative(word: str) -> float:
    return _number(word, float, 0.0, "zero or a positive number")


def _number(word: str, kind: type[NumberT], least: float, expected: str) -> NumberT:
    try:
        value = kind(word)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{word}' is not {expected}") from None
    if not least <= value < math.inf:
        raise argparse.ArgumentTypeError(f"'{word}' is not {expected}")
    return value
