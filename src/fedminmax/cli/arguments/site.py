"""The options of `fedminmax site`."""

import argparse
from pathlib import Path
from typing import Any

from fedminmax.cli.arguments.types import add_format_options, format_changes, positive, positive_int


def add_site(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add `site` to the command line."""
    parser = commands.add_parser(
        "site",
        help="take part in a federation with a table of your own",
        description="For a site's administrator: see what would leave the site, and take part.",
        epilog="example: fedminmax site check --kit . --data hospital.csv --minimum-group 20",
    )
    parser.set_defaults(run=lambda _: parser.print_help())
    actions = parser.add_subparsers(title="actions", metavar="ACTION")
    _add_request(actions)
    _add_check(actions)
    _add_start(actions)
    _add_status(actions)
    _add_log(actions)


def _add_request(actions: "argparse._SubParsersAction[Any]") -> None:
    parser = actions.add_parser(
        "request",
        help="make your site's key, and a certificate request for the coordinator",
        description="Make the private key of a site, which stays here, and a certificate request, "
        "which goes to the coordinator: the kit that comes back has a certificate and no key.",
        epilog="example: fedminmax site request north --out keys",
    )
    add = parser.add_argument
    add("site", metavar="NAME", help="the site's name in the federation")
    add("--out", type=Path, default=Path(), metavar="FOLDER", help="(this folder)")
    parser.set_defaults(run=_run_request)


def _add_check(actions: "argparse._SubParsersAction[Any]") -> None:
    parser = actions.add_parser(
        "check",
        help="read your table, and show what would leave your site",
        description="Read the table as the configuration says, show what would leave the site, "
        "and record in the kit which table and which columns you agree to. Earlier settings are "
        "kept unless an option changes them. Nothing is sent.",
        epilog="example: fedminmax site check --kit . --data hospital.csv --minimum-group 20",
    )
    add = parser.add_argument
    add("--kit", type=Path, required=True, metavar="FOLDER", help="from the coordinator")
    add("--data", type=Path, required=True, metavar="FILE", help="your table: CSV or Parquet")
    add("--config", type=Path, metavar="FILE", help="the agreed one (fedminmax.toml in the kit)")
    add(
        "--minimum-group",
        type=positive_int,
        metavar="N",
        help="suppress groups with fewer training rows (as recorded in the kit, else 1)",
    )
    add(
        "--small-groups",
        choices=["refuse", "merge"],
        help="if there are smaller groups: do not take part, or merge them into one (as recorded "
        "in the kit, else refuse)",
    )
    add(
        "--minimum-sites",
        type=positive_int,
        metavar="N",
        help="refuse runs that may continue with fewer sites (as recorded in the kit, else 2)",
    )
    add(
        "--max-runs",
        type=positive_int,
        metavar="N",
        help="take part in at most N runs on the same table (as recorded in the kit, else 20)",
    )
    add(
        "--allow-other-sites",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="allow masked totals on the same table over sets of sites that differ in few of them, "
        "about which their difference tells (as recorded in the kit, else no)",
    )
    add(
        "--max-epsilon",
        type=positive,
        metavar="EPSILON",
        help="the most that all runs with a privacy guarantee may spend on this table together "
        "(as recorded in the kit, else no limit)",
    )
    add_format_options(parser, "as recorded in the kit, else as the configuration says")
    parser.set_defaults(run=_run_check)


def _add_start(actions: "argparse._SubParsersAction[Any]") -> None:
    parser = actions.add_parser(
        "start",
        help="take part until Ctrl-C",
        description="Run the site of a kit; it is restarted if it dies.",
        epilog="example: fedminmax site start --kit .",
    )
    parser.add_argument("--kit", type=Path, required=True, metavar="FOLDER", help="your kit")
    parser.set_defaults(run=_run_start)


def _add_status(actions: "argparse._SubParsersAction[Any]") -> None:
    parser = actions.add_parser(
        "status",
        help="does your site run here, and reach the server?",
        description="Print one line: whether the site of a kit runs on this machine, and whether "
        "the server accepts its certificate. Exit code 0: both; 1: not.",
        epilog="example: fedminmax site status --kit .",
    )
    add = parser.add_argument
    add("--kit", type=Path, required=True, metavar="FOLDER", help="your kit")
    add("--json", action="store_true", help="print machine-readable results alone")
    parser.set_defaults(run=_run_status)


def _add_log(actions: "argparse._SubParsersAction[Any]") -> None:
    parser = actions.add_parser(
        "log",
        help="see what left your site",
        description="Show every message that left the site, the newest last: when, in answer to "
        "which question, how many bytes, masked or not, and its SHA-256; refusals with their "
        "reason; and totals.",
        epilog="example: fedminmax site log --kit . --run study-1",
    )
    add = parser.add_argument
    add("--kit", type=Path, required=True, metavar="FOLDER", help="your kit")
    add("--run", dest="run_name", metavar="NAME", help="of this run alone")
    add("--json", action="store_true", help="one JSON object per line; the last has the totals")
    parser.set_defaults(run=_run_log)


def _run_request(options: argparse.Namespace) -> None:
    from fedminmax.cli.commands.site import request

    request(options.site, options.out)


def _run_check(options: argparse.Namespace) -> None:
    from fedminmax.cli.commands.federation_kits import AGREED_FILE
    from fedminmax.cli.commands.site import PolicyChanges, check
    from fedminmax.network.site.settings import SmallGroups

    small = None if options.small_groups is None else SmallGroups(options.small_groups)
    changes = PolicyChanges(
        options.minimum_group,
        small,
        options.minimum_sites,
        options.max_runs,
        options.max_epsilon,
        options.allow_other_sites,
    )
    config = options.config or options.kit / AGREED_FILE
    check(options.kit, config, options.data, changes, format_changes(options))


def _run_start(options: argparse.Namespace) -> None:
    from fedminmax.cli.commands.site import run_site

    run_site(options.kit)


def _run_status(options: argparse.Namespace) -> None:
    from fedminmax.cli.commands.kit_status import show_kit_status

    show_kit_status(options.kit, as_json=options.json)


def _run_log(options: argparse.Namespace) -> None:
    from fedminmax.cli.commands.site_log import show_log

    show_log(options.kit, options.run_name, as_json=options.json)
