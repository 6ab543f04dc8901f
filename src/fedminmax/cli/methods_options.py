"""The words of `fedminmax methods`."""

import argparse
from typing import Any


def add_to(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add `methods` to the command line."""
    parser = commands.add_parser(
        "methods",
        help="list every method: paper, goal, what holders reveal, options",
        description="List every method: its paper, what it optimises, what a holder reveals to "
        "the server, whether it needs all holders, and its options with their defaults.",
        epilog="example: fedminmax methods fedminmax qfedavg",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these, with their options")
    parser.add_argument("--json", action="store_true", help="print machine-readable cards")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> None:
    from fedminmax.cli.list_methods import list_methods

    list_methods(options.names, as_json=options.json)
