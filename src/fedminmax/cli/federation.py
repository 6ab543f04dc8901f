"""`fedminmax federation`: run between real sites, each with its own table.

Its actions are create, start, local, and the coordinator's: run, status, resume and stop. Further
options set how a run over a network handles sites that do not answer, or answer wrongly.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedminmax.cli.options import (
    Commands,
    add_command,
    add_options,
    deferred,
    duration,
    name_list,
    positive,
    positive_int,
    whole_number,
)
from fedminmax.network.wire.site_rules import SiteRules

# The type, metavar and meaning of each rule; its default is that of ``SiteRules``.
RULES: dict[str, tuple[Callable[[str], Any], str, str]] = {
    "minimum_sites": (positive_int, "N", "wait while a round has fewer valid replies (2)"),
    "reply_timeout": (duration, "TIME", "skip a site that takes longer, for some rounds (10m)"),
    "skip_rounds": (
        whole_number,
        "N",
        "ask it again after N rounds, then after twice as many, ... (10)",
    ),
    "round_timeout": (
        duration,
        "TIME",
        "stop if a round waits this long; the run can be resumed (1h)",
    ),
    "max_step_ratio": (
        positive,
        "X",
        "refuse a network's step that is X times as long as the others' (1000)",
    ),
    "max_rows": (
        positive_int,
        "N",
        "refuse a site that reports more training rows (1000000000)",
    ),
    "abort_below": (
        positive_int,
        "N",
        "stop before the first round if a group has fewer training rows in total (5)",
    ),
}


def add_to(commands: Commands) -> None:
    """Add the command and its actions."""
    parser = add_command(
        commands,
        "federation",
        short="run between real sites, each with its own table",
        text="Run a configuration between separate processes or machines: every site keeps its "
        "rows, and only sums travel, over mutual TLS.",
        example="federation local fedminmax.toml",
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION")
    _add_create(actions)
    start = add_command(
        actions,
        "start",
        deferred("participant", "run_server"),
        short="run the server of a kit until Ctrl-C",
        text="Run the server of a kit; it is restarted if it dies.",
        example="federation start --kit kits/server",
    )
    start.add_argument("--kit", type=Path, required=True, metavar="FOLDER", help="the server's")
    run = _add_run(
        actions,
        "run",
        short="run a configuration between the sites, and follow it",
        text="Submit a configuration to the server, show its rounds, and write the same run folder "
        "as 'fedminmax train'. If this command ends, the run continues at the server; run the "
        "command again to follow it.",
        config="a fedminmax.toml; its data paths are not used",
    )
    # No option that changes what a site is asked for: sites agree to the configuration alone.
    add_options(run, "--rounds", "--patience")
    _add_run(
        actions,
        "audit",
        short="measure predictions that the sites have by group",
        text="Measure by group, over all sites, columns of predictions that their tables have: "
        "those that the section [audit] of the configuration names. Nothing is trained, and sites "
        "send sums. The run folder is that of 'fedminmax audit'.",
        config="a fedminmax.toml with a section [audit]",
    )
    _add_status(actions)
    _add_for_a_run(
        actions,
        "resume",
        short="continue a run: follow it, or submit it again from its last round",
        text="Continue a run of 'fedminmax federation run', whatever its state.",
    )
    _add_for_a_run(
        actions,
        "stop",
        short="stop a run at the server; every finished round is saved",
        text="Stop a run of 'fedminmax federation run'. It can be resumed.",
    )
    _add_local(actions)


def _add_site_rules(parser: argparse.ArgumentParser) -> None:
    add, defaults = parser.add_argument_group("sites that do not answer").add_argument, SiteRules()
    for name, (kind, metavar, text) in RULES.items():
        default = getattr(defaults, name)
        option = f"--{name.replace('_', '-')}"
        add(option, type=kind, default=default, metavar=metavar, help=text)


def _add_create(actions: Commands) -> None:
    parser = add_command(
        actions,
        "create",
        deferred("federation_actions", "create_federation"),
        short="create start-up kits for the server, every site and every person",
        text="Read federation.toml ([server] host and port, sites, [people] with roles) and create "
        "a folder to hand over to each of them, with certificates for mutual TLS.",
        example="federation create federation.toml --config fedminmax.toml",
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


def _add_local(actions: Commands) -> None:
    parser = add_command(
        actions,
        "local",
        deferred("federation_actions", "run_local_federation"),
        short="try it on one machine: server and sites as local processes",
        text="Start a server and a process for each site of the configuration on "
        "this machine, run the method between them, and stop them all.",
        example="federation local fedminmax.toml",
    )
    add = parser.add_argument
    add("config", type=Path, metavar="CONFIG", help="a fedminmax.toml; 'fedminmax init' writes one")
    add("--out", type=Path, metavar="RUN", help="the run folder (runs/NAME-federation)")
    add(
        "--secure-aggregation",
        action=argparse.BooleanOptionalAction,
        help="sites mask what they send, so that the server learns totals alone (default: "
        "secure_aggregation in [federation]; if that is not set, on for three sites or more)",
    )
    add_options(parser, "--set", "--rounds", "--certify", "--frontier")
    _add_site_rules(parser)


def _add_run(
    actions: Commands, name: str, *, short: str, text: str, config: str
) -> argparse.ArgumentParser:
    """Add an action that runs a configuration between the sites."""
    parser = add_command(
        actions,
        name,
        deferred("federation_actions", f"{name}_federation"),
        short=short,
        text=text,
        example=f"federation {name} fedminmax.toml --kit kits/people/ann@lab.org",
    )
    add = parser.add_argument
    add("config", type=Path, metavar="CONFIG", help=config)
    add_options(parser, "--kit")
    add("--out", type=Path, metavar="RUN", help="the run folder (runs/NAME-federation)")
    add("--sites", type=name_list, metavar="LIST", help="names of the sites that take part (all)")
    add_options(parser, "--wait")
    _add_site_rules(parser)
    return parser


def _add_status(actions: Commands) -> None:
    parser = add_command(
        actions,
        "status",
        _status,
        short="show which sites are connected, and the status of the runs",
        text="With a person's kit: show the sites that are connected and the server's runs. With "
        "the server's own kit: print one line, whether the server runs on this machine and "
        "answers; exit code 0: both; 1: not.",
        example="federation status --kit kits/people/ann@lab.org",
    )
    add_options(parser, "--kit", "--wait", "--json")


def _status(options: argparse.Namespace) -> None:
    from fedminmax.network.flare.presence import is_server_kit

    if is_server_kit(options.kit):
        deferred("participant", "show_kit_status")(options)
    else:
        deferred("federation_actions", "show_status")(options)


def _add_for_a_run(actions: Commands, name: str, *, short: str, text: str) -> None:
    """Add an action on a run folder."""
    run, example = deferred("federation_actions", f"{name}_run"), "runs/fedminmax-federation"
    parser = add_command(
        actions, name, run, short=short, text=text, example=f"federation {name} {example}"
    )
    parser.add_argument("folder", type=Path, metavar="RUN", help="the run folder")
    add_options(parser, "--wait")
