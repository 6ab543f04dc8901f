"""Options about how far a run is from the best: when to stop, and whether to prove it."""

import argparse

from fedminmax.cli.option_types import positive


def add_gap(parser: argparse.ArgumentParser) -> None:
    """Add the option to a command."""
    parser.add_argument(
        "--gap",
        type=positive,
        metavar="SHARE",
        help="stop when the worst group's training risk is proved to be within this share of the "
        "lowest possible, such as 1e-4; for fedminmax-fast",
    )


def add_certify(parser: argparse.ArgumentParser) -> None:
    """Add the option to a command."""
    parser.add_argument(
        "--certify",
        action="store_true",
        help="after the run, prove with up to 20 more rounds how much lower the worst group's "
        "training risk could be (logistic with cross-entropy, or linear; with a ridge)",
    )
