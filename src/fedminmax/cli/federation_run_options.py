"""The coordinator's words of `fedminmax federation`: run, status, resume, stop."""

import argparse
from pathlib import Path
from typing import Any

from fedminmax.cli.option_types import duration, positive_int
from fedminmax.cli.proof_options import add_certify, add_gap
from fedminmax.cli.site_rules_options import add_site_rules, site_rules_of
from fedminmax.cli.validation_options import add_validation


def add_to(actions: "argparse._SubParsersAction[Any]") -> None:
    """Add what a coordinator does with a run."""
    _add_run(actions)
    _add_status(actions)
    _add_resume(actions)
    _add_stop(actions)


def default_folder(config: Path) -> Path:
    """Return where a run of this configuration goes unless it is said otherwise."""
    return Path("runs", f"{config.stem}-federation")


def add_compress(parser: argparse.ArgumentParser) -> None:
    """Add the option for replies in fewer bytes."""
    parser.add_argument(
        "--compress",
        action="store_true",
        help="replies in fewer bytes: steps in bfloat16, what that leaves out is sent with the "
        "next; curvature of fedminmax-fast in single precision",
    )


def _add_run(actions: "argparse._SubParsersAction[Any]") -> None:
    parser = actions.add_parser(
        "run",
        help="run a configuration between the sites, and follow it",
        description="Submit a configuration to the server, show its rounds, and leave the same run "
        "folder as 'fedminmax train'. The run goes on at the server if this command ends; called "
        "again, it goes on from there.",
        epilog="example: fedminmax federation run fedminmax.toml --kit kits/people/ann@lab.org",
    )
    add = parser.add_argument
    add("config", type=Path, metavar="CONFIG", help="a fedminmax.toml; its data paths are not used")
    _add_kit(parser)
    add("--out", type=Path, metavar="RUN", help="the run folder (runs/NAME-federation)")
    add("--sites", metavar="LIST", help="names of those who take part (all of the federation)")
    add("--rounds", type=positive_int, metavar="N", help="instead of those in the configuration")
    add_compress(parser)
    _add_wait(parser)
    add_validation(parser)
    add_gap(parser)
    add_certify(parser)
    add_site_rules(parser)
    parser.set_defaults(run=_run_run)


def _add_status(actions: "argparse._SubParsersAction[Any]") -> None:
    parser = actions.add_parser(
        "status",
        help="show who is connected, and how the runs are",
        description="Show the sites that are connected and the server's runs.",
        epilog="example: fedminmax federation status --kit kits/people/ann@lab.org",
    )
    _add_kit(parser)
    _add_wait(parser)
    parser.add_argument("--json", action="store_true", help="print machine-readable results alone")
    parser.set_defaults(run=_run_status)


def _add_resume(actions: "argparse._SubParsersAction[Any]") -> None:
    parser = _add_for_a_run(
        actions,
        "resume",
        "go on with a run: follow it, or submit it again from its last round",
        "Go on with a run of 'fedminmax federation run', wherever it is.",
    )
    parser.set_defaults(run=_run_resume)


def _add_stop(actions: "argparse._SubParsersAction[Any]") -> None:
    parser = _add_for_a_run(
        actions,
        "stop",
        "stop a run at the server; every finished round is saved",
        "Stop a run of 'fedminmax federation run'. It can be resumed.",
    )
    parser.set_defaults(run=_run_stop)


def _add_for_a_run(
    actions: "argparse._SubParsersAction[Any]", name: str, short: str, description: str
) -> argparse.ArgumentParser:
    """Add an action on a run folder."""
    parser: argparse.ArgumentParser = actions.add_parser(
        name,
        help=short,
        description=description,
        epilog=f"example: fedminmax federation {name} runs/fedminmax-federation",
    )
    parser.add_argument("folder", type=Path, metavar="RUN", help="the run folder")
    _add_wait(parser)
    return parser


def _add_kit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kit", type=Path, required=True, metavar="FOLDER", help="your own")


def _add_wait(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--wait",
        type=duration,
        default=60.0,
        metavar="TIME",
        help="for a server that is away, and for sites that are missing (60s)",
    )


def _run_run(options: argparse.Namespace) -> None:
    from fedminmax.cli.federation_run import RunRequest, run_federation

    sites = None
    if options.sites:
        sites = tuple(site.strip() for site in options.sites.split(","))
    run_federation(
        RunRequest(
            options.config,
            options.kit,
            options.out or default_folder(options.config),
            sites,
            options.rounds,
            site_rules_of(options),
            options.wait,
            options.validation,
            options.patience,
            options.compress,
            options.gap,
            options.certify,
        )
    )


def _run_status(options: argparse.Namespace) -> None:
    from fedminmax.cli.federation_status import show_status

    show_status(options.kit, options.wait, as_json=options.json)


def _run_resume(options: argparse.Namespace) -> None:
    from fedminmax.cli.federation_run import resume_run

    resume_run(options.folder, options.wait)


def _run_stop(options: argparse.Namespace) -> None:
    from fedminmax.cli.federation_run import stop_run

    stop_run(options.folder, options.wait)
