"""The options of `fedminmax federation`.

Its actions are create, start, local, and the coordinator's: run, status, resume and stop. Further
options set how a run over a network handles sites that do not answer, or answer wrongly.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedminmax.cli.arguments.types import (
    add_certify,
    add_gap,
    add_patience,
    add_validation,
    duration,
    overrides_of,
    positive,
    positive_int,
    whole_number,
)

if TYPE_CHECKING:
    from fedminmax.network.wire.plan import SiteRules


def add_site_rules(parser: argparse.ArgumentParser) -> None:
    """Add the options to a command."""
    add = parser.add_argument_group("sites that do not answer").add_argument
    add(
        "--minimum-sites",
        type=positive_int,
        default=2,
        metavar="N",
        help="wait while a round has fewer valid replies (2)",
    )
    add(
        "--answer-within",
        type=duration,
        default=600.0,
        metavar="TIME",
        help="skip a site that takes longer, for some rounds (10m)",
    )
    add(
        "--rounds-left-out",
        type=whole_number,
        default=10,
        metavar="N",
        help="ask it again after N rounds, then after twice as many, ... (10)",
    )
    add(
        "--give-up-after",
        type=duration,
        default=3600.0,
        metavar="TIME",
        help="stop if a round waits this long; the run can be resumed (1h)",
    )
    add(
        "--largest-step",
        type=positive,
        default=1000.0,
        metavar="X",
        help="refuse a network's step that is X times as long as the others' (1000)",
    )
    add(
        "--max-rows",
        type=positive_int,
        default=10**9,
        metavar="N",
        help="refuse a site that reports more training rows (1000000000)",
    )
    add(
        "--minimum-group",
        type=positive_int,
        default=5,
        metavar="N",
        help="stop before the first round if a group has fewer training rows in total (5)",
    )


def site_rules_of(options: argparse.Namespace) -> "SiteRules":
    """Return the rules that the options set."""
    from fedminmax.network.wire.plan import SiteRules

    return SiteRules(
        options.answer_within,
        minimum_sites=options.minimum_sites,
        rounds_left_out=options.rounds_left_out,
        give_up_after=options.give_up_after,
        largest_step_ratio=options.largest_step,
        max_rows=options.max_rows,
        minimum_group=options.minimum_group,
    )


def add_federation(commands: "argparse._SubParsersAction[Any]") -> None:
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
    add_federation_runs(actions)
    _add_local(actions)


def _add_create(actions: "argparse._SubParsersAction[Any]") -> None:
    parser = actions.add_parser(
        "create",
        help="create start-up kits for the server, every site and every person",
        description="Read federation.toml ([server] host and port, sites, [people] with roles) "
        "and create a folder to hand over to each of them, with certificates for mutual TLS.",
        epilog="example: fedminmax federation create federation.toml --config fedminmax.toml",
    )
    add = parser.add_argument
    add("file", type=Path, metavar="FILE", help="a federation.toml")
    add("--out", type=Path, default=Path("kits"), metavar="FOLDER", help="(kits)")
    add("--config", type=Path, metavar="FILE", help="the agreed fedminmax.toml, for every site")
    add(
        "--requests",
        type=Path,
        metavar="FOLDER",
        help="NAME.csr of every site, as 'fedminmax site request' writes them: sites keep their "
        "keys, and their kits have none",
    )
    parser.set_defaults(run=_run_create)


def _add_start(actions: "argparse._SubParsersAction[Any]") -> None:
    parser = actions.add_parser(
        "start",
        help="run the server of a kit until Ctrl-C",
        description="Run the server of a kit; it is restarted if it dies.",
        epilog="example: fedminmax federation start --kit kits/server",
    )
    parser.add_argument("--kit", type=Path, required=True, metavar="FOLDER", help="the server's")
    parser.set_defaults(run=_run_start)


def _add_local(actions: "argparse._SubParsersAction[Any]") -> None:
    parser = actions.add_parser(
        "local",
        help="try it on one machine: server and sites as local processes",
        description="Start a server and one site per site of the configuration as separate "
        "processes on this machine, run the method between them, and stop them all.",
        epilog="example: fedminmax federation local fedminmax.toml --sites 3",
    )
    add = parser.add_argument
    add("config", type=Path, metavar="CONFIG", help="a fedminmax.toml; 'fedminmax init' writes one")
    add("--sites", type=positive_int, metavar="N", help="how many sites you expect it to have")
    add("--out", type=Path, metavar="RUN", help="the run folder (runs/NAME-federation)")
    add("--rounds", type=positive_int, metavar="N", help="instead of those in the configuration")
    add(
        "--secure-aggregation",
        action=argparse.BooleanOptionalAction,
        help="sites mask what they send, so that the server learns totals alone (default: "
        "secure_aggregation in [federation]; if that is not set, on for three sites or more)",
    )
    add_validation(parser)
    add_patience(parser)
    add_gap(parser)
    add_certify(parser)
    add_site_rules(parser)
    parser.set_defaults(run=_run_local)


def _run_create(options: argparse.Namespace) -> None:
    from fedminmax.cli.commands.federation_kits import create_federation

    create_federation(options.file, options.out, options.config, options.requests)


def _run_start(options: argparse.Namespace) -> None:
    from fedminmax.cli.commands.site import run_server

    run_server(options.kit)


def _run_local(options: argparse.Namespace) -> None:
    from fedminmax.cli.commands.federation import LocalRequest, run_local_federation

    out = options.out or default_folder(options.config)
    run_local_federation(
        LocalRequest(
            options.config,
            out,
            sites=options.sites,
            site_rules=site_rules_of(options),
            overrides=overrides_of(options),
        )
    )


def add_federation_runs(actions: "argparse._SubParsersAction[Any]") -> None:
    """Add the coordinator's actions on a run."""
    _add_run(actions)
    _add_status(actions)
    _add_resume(actions)
    _add_stop(actions)


def default_folder(config: Path) -> Path:
    """Return the default run folder of this configuration."""
    return Path("runs", f"{config.stem}-federation")


def _add_run(actions: "argparse._SubParsersAction[Any]") -> None:
    parser = actions.add_parser(
        "run",
        help="run a configuration between the sites, and follow it",
        description="Submit a configuration to the server, show its rounds, and write the same run "
        "folder as 'fedminmax train'. If this command ends, the run continues at the server; run "
        "the command again to follow it.",
        epilog="example: fedminmax federation run fedminmax.toml --kit kits/people/ann@lab.org",
    )
    add = parser.add_argument
    add("config", type=Path, metavar="CONFIG", help="a fedminmax.toml; its data paths are not used")
    _add_kit(parser)
    add("--out", type=Path, metavar="RUN", help="the run folder (runs/NAME-federation)")
    add("--sites", metavar="LIST", help="names of the sites that take part (all)")
    add("--rounds", type=positive_int, metavar="N", help="instead of those in the configuration")
    _add_wait(parser)
    # No option that changes what a site is asked for: sites agree to the configuration alone.
    add_patience(parser)
    add_site_rules(parser)
    parser.set_defaults(run=_run_run)


def _add_status(actions: "argparse._SubParsersAction[Any]") -> None:
    parser = actions.add_parser(
        "status",
        help="show which sites are connected, and the status of the runs",
        description="With a person's kit: show the sites that are connected and the server's runs. "
        "With the server's own kit: print one line, whether the server runs on this machine and "
        "answers; exit code 0: both; 1: not.",
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
        "continue a run: follow it, or submit it again from its last round",
        "Continue a run of 'fedminmax federation run', whatever its state.",
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
        help="how long to wait for an absent server and for missing sites (60s)",
    )


def _run_run(options: argparse.Namespace) -> None:
    from fedminmax.cli.commands.federation import RunRequest, run_federation

    sites = None
    if options.sites:
        sites = tuple(site.strip() for site in options.sites.split(","))
    run_federation(
        RunRequest(
            options.config,
            options.kit,
            folder=options.out or default_folder(options.config),
            sites=sites,
            site_rules=site_rules_of(options),
            overrides=overrides_of(options),
            wait=options.wait,
        )
    )


def _run_status(options: argparse.Namespace) -> None:
    from fedminmax.network.flare.presence import is_server_kit

    if is_server_kit(options.kit):
        from fedminmax.cli.commands.kit_status import show_kit_status

        show_kit_status(options.kit, as_json=options.json)
        return
    from fedminmax.cli.commands.federation_status import show_status

    show_status(options.kit, options.wait, as_json=options.json)


def _run_resume(options: argparse.Namespace) -> None:
    from fedminmax.cli.commands.federation import resume_run

    resume_run(options.folder, options.wait)


def _run_stop(options: argparse.Namespace) -> None:
    from fedminmax.cli.commands.federation import stop_run

    stop_run(options.folder, options.wait)
