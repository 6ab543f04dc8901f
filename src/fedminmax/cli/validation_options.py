"""Options that say how validation rows choose the round."""

import argparse

from fedminmax.cli.option_types import not_negative, positive_int


def add_validation(parser: argparse.ArgumentParser) -> None:
    """Add the options to a command."""
    add = parser.add_argument
    add(
        "--validation",
        type=not_negative,
        metavar="SHARE",
        help="of each holder's training rows, to choose the round by (0.1 for an mlp, else 0)",
    )
    add(
        "--patience",
        type=positive_int,
        metavar="N",
        help="stop after N rounds in a row that are no better on validation rows",
    )
