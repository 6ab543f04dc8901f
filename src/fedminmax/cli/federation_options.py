"""The words of `fedminmax federation`."""

import argparse
from pathlib import Path
from typing import Any

from fedminmax.cli.option_types import positive_int


def add_to(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add `federation` to the command line."""
    parser = commands.add_parser(
        "federation",
        help="run between real sites, each with its own table",
        description="Run a configuration between separate processes or machines: every site keeps "
        "its rows, and only sums travel, over mutual TLS.",
        epilog="example: fedminmax federation local fedminmax.toml --sites 3",
    )
    parser.set_defaults(run=lambda _: parser.print_help())
    actions = parser.add_subparsers(title="actions", metavar="ACTION")
    _add_local(actions)


def _add_local(actions: "argparse._SubParsersAction[Any]") -> None:
    parser = actions.add_parser(
        "local",
        help="try it alone: server and sites as processes of this machine",
        description="Start a server and one site per holder of the configuration as separate "
        "processes on this machine, run the method between them, and end them all.",
        epilog="example: fedminmax federation local fedminmax.toml --sites 3",
    )
    add = parser.add_argument
    add("config", type=Path, metavar="CONFIG", help="a fedminmax.toml; 'fedminmax init' writes one")
    add("--sites", type=positive_int, metavar="N", help="how many holders you expect it to have")
    add("--out", type=Path, metavar="RUN", help="the run folder (runs/NAME-federation)")
    add("--rounds", type=positive_int, metavar="N", help="instead of those in the configuration")
    parser.set_defaults(run=_run_local)


def _run_local(options: argparse.Namespace) -> None:
    from fedminmax.cli.federation_local import LocalRequest, run_local_federation

    out = options.out or Path("runs", f"{options.config.stem}-federation")
    run_local_federation(LocalRequest(options.config, out, options.sites, options.rounds))
