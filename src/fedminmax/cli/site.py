"""`fedminmax site`: take part in a federation with a table of your own."""

import argparse
from pathlib import Path

from fedminmax.cli.options import (
    Commands,
    add_command,
    add_format_options,
    add_options,
    deferred,
    positive,
    positive_int,
)

# The agreed configuration in a kit.
AGREED_FILE = "fedminmax.toml"
CHECK = "site check --kit . --data hospital.csv --suppress-below 20"


def add_to(commands: Commands) -> None:
    """Add the command and its actions."""
    parser = add_command(
        commands,
        "site",
        short="take part in a federation with a table of your own",
        text="For a site's administrator: see what would leave the site, and take part.",
        example=CHECK,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION")
    request = add_command(
        actions,
        "request",
        _request,
        short="make your site's key, and a certificate request for the coordinator",
        text="Make the private key of a site, which stays here, and a certificate request, which "
        "goes to the coordinator: the kit that comes back has a certificate and no key.",
        example="site request north --out keys",
    )
    request.add_argument("site", metavar="NAME", help="the site's name in the federation")
    request.add_argument("--out", type=Path, default=Path(), metavar="FOLDER", help="(this folder)")
    _add_check(actions)
    start = add_command(
        actions,
        "start",
        deferred("participant", "run_site"),
        short="take part until Ctrl-C",
        text="Run the site of a kit; it is restarted if it dies.",
        example="site start --kit .",
    )
    status = add_command(
        actions,
        "status",
        deferred("participant", "show_kit_status"),
        short="does your site run here, and reach the server?",
        text="Print one line: whether the site of a kit runs on this machine, and whether the "
        "server accepts its certificate. Exit code 0: both; 1: not.",
        example="site status --kit .",
    )
    add_options(status, "--json")
    log = add_command(
        actions,
        "log",
        deferred("site_actions", "show_log"),
        short="see what left your site",
        text="Show every message that left the site, the newest last: when, in answer to which "
        "question, how many bytes, masked or not, and its SHA-256; refusals with their reason; and "
        "totals.",
        example="site log --kit . --run study-1",
    )
    log.add_argument("--run", dest="run_name", metavar="NAME", help="of this run alone")
    log.add_argument(
        "--json", action="store_true", help="one JSON object per line; the last has the totals"
    )
    for action in (start, status, log):
        add_options(action, "--kit")


def _add_check(actions: Commands) -> None:
    parser = add_command(
        actions,
        "check",
        deferred("site_actions", "check"),
        short="read your table, and show what would leave your site",
        text="Read the table as the configuration says, show what would leave the site, and record "
        "in the kit which table and which columns you agree to. Earlier settings are kept unless "
        "an option changes them. Nothing is sent.",
        example=CHECK,
    )
    add = parser.add_argument
    add("--kit", type=Path, required=True, metavar="FOLDER", help="from the coordinator")
    add("--data", type=Path, required=True, metavar="FILE", help="your table: CSV or Parquet")
    add("--config", type=Path, metavar="FILE", help="the agreed one (fedminmax.toml in the kit)")
    add(
        "--suppress-below",
        type=positive_int,
        metavar="N",
        help="suppress groups with fewer training rows (as recorded in the kit, else 1)",
    )
    add(
        "--small-groups",
        choices=("refuse", "merge"),
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


def _request(options: argparse.Namespace) -> None:
    """Make a site's key, and a certificate request for the coordinator."""
    from fedminmax.cli.main import say
    from fedminmax.network.flare.federation_file import write_request

    key, sent = write_request(options.site, options.out)
    say(
        f"{sent}: send it to the coordinator; {key} stays here: copy it to startup/client.key of "
        "the kit that you get"
    )
