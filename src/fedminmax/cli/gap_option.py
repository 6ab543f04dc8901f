"""The option that says when a run that knows how far it is from the best may stop."""

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
