"""The words of `fedminmax federation`."""

import argparse
from pathlib import Path
from typing import Any

from fedminmax.cli import federation_run_options
from fedminmax.cli.option_types import positive_int
from fedminmax.cli.proof_options import add_certify, add_gap
from fedminmax.cli.site_rules_options import add_site_rules, site_rules_of
from fedminmax.cli.validation_options import add_validation


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
    _add_create(actions)
    _add_start(actions)
    federation_run_options.add_to(actions)
    _add_local(actions)


def _add_create(actions: "argparse._SubParsersAction[Any]") -> None:
    parser = actions.add_parser(
        "create",
        help="make start-up kits for the server, every site and every person",
        description="Read federation.toml ([server] host and port, sites, [people] with roles) "
        "and make a folder to hand over to each of them, with certificates for mutual TLS.",
        epilog="example: fedminmax federation create federation.toml --config fedminmax.toml",
    )
    add = parser.add_argument
    add("file", type=Path, metavar="FILE", help="a federation.toml")
    add("--out", type=Path, default=Path("kits"), metavar="FOLDER", help="(kits)")
    add("--config", type=Path, metavar="FILE", help="the agreed fedminmax.toml, for every site")
    parser.set_defaults(run=_run_create)


def _add_start(actions: "argparse._SubParsersAction[Any]") -> None:
    parser = actions.add_parser(
        "start",
        help="run the server of a kit until Ctrl-C",
        description="Run the server of a kit; it is started again if it dies.",
        epilog="example: fedminmax federation start --kit kits/server",
    )
    parser.add_argument("--kit", type=Path, required=True, metavar="FOLDER", help="the server's")
    parser.set_defaults(run=_run_start)


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
    federation_run_options.add_compress(parser)
    add_validation(parser)
    add_gap(parser)
    add_certify(parser)
    add_site_rules(parser)
    parser.set_defaults(run=_run_local)


def _run_create(options: argparse.Namespace) -> None:
    from fedminmax.cli.federation_create import create_federation

    create_federation(options.file, options.out, options.config)


def _run_start(options: argparse.Namespace) -> None:
    from fedminmax.cli.participant import run_server

    run_server(options.kit)


def _run_local(options: argparse.Namespace) -> None:
    from fedminmax.cli.federation_local import LocalRequest, run_local_federation

    out = options.out or federation_run_options.default_folder(options.config)
    run_local_federation(
        LocalRequest(
            options.config,
            out,
            options.sites,
            options.rounds,
            site_rules_of(options),
            options.validation,
            options.patience,
            options.compress,
            options.gap,
            options.certify,
        )
    )
