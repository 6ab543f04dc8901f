"""The words that all data sets of `fedminmax compare` share."""

import argparse
from dataclasses import dataclass

from fedminmax.cli.option_types import NameList, positive, positive_int, whole_number
from fedminmax.cli.study_options import add_folder_options

SETTINGS = ("ESG", "SSG", "PSG", "centralized")


@dataclass(frozen=True)
class Defaults:
    """What a data set takes where the user says nothing; None leaves it to each method."""

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
        help=f"names with options, or all ({defaults.methods}); name@setting runs in that setting "
        "alone; see 'fedminmax methods'",
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
        ("fast-rounds", defaults.fast_rounds, "most rounds of fast methods"),
    ):
        add(
            f"--{option}",
            type=positive_int,
            default=number,
            metavar="N",
            help=f"{what} ({number})",
        )
    add("--holders", type=positive_int, default=40, metavar="N", help="number of holders (40)")
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
        "--secure-sums",
        action="store_true",
        help="refuse methods that need more than sums over all holders",
    )
    add("--seed", type=whole_number, default=0, metavar="N", help="of all randomness (0)")
    add("--device", default="cpu", metavar="NAME", help="cpu, cuda, cuda:1, mps, ... (cpu)")
    add_folder_options(parser, f"runs/compare-{name}")


def add_rows(parser: argparse.ArgumentParser, rows: int) -> None:
    """Add the number of training rows, for data sets that are drawn or thinned."""
    parser.add_argument(
        "--rows", type=positive_int, default=rows, metavar="N", help=f"training rows ({rows})"
    )
