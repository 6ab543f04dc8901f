"""The words of `fedminmax reproduce`: the paper's experiments, no heavy import."""

import argparse
from typing import Any

from fedminmax.cli import fashion_options, synthetic_options


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
    synthetic_options.add_to(experiments)
    fashion_options.add_to(experiments)
