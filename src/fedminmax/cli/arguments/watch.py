"""The options of `fedminmax watch`."""

import argparse
from pathlib import Path
from typing import Any

from fedminmax.cli.arguments.types import duration, port_number


def add_watch(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add `watch` to the command line."""
    parser = commands.add_parser(
        "watch",
        help="show a run in the browser while it goes on",
        description="Serve one page to this machine alone: risk by group and weights by round as "
        "they come, how close to the best possible they are proved to be, who answered, time left "
        "and privacy budget. RUN is a folder that 'fedminmax train' or 'fedminmax federation' "
        "writes, has written, or will write; with --kit it is the newest run at the server. "
        "Nothing is changed, and Ctrl-C ends the page, not the run.",
        epilog="example: fedminmax watch runs/clinic --open",
    )
    add = parser.add_argument
    add("folder", type=Path, nargs="?", metavar="RUN", help="the run folder")
    add("--kit", type=Path, metavar="FOLDER", help="your own kit, to watch a federation's run")
    add("--port", type=port_number, default=0, metavar="N", help="(0: any free port)")
    add("--open", action="store_true", help="open the page in your browser")
    add(
        "--wait",
        type=duration,
        default=10.0,
        metavar="TIME",
        help="how long to wait for an absent server before saying so (10s)",
    )
    parser.set_defaults(run=_run_watch)


def _run_watch(options: argparse.Namespace) -> None:
    from fedminmax.cli.commands.watch import WatchRequest, watch

    watch(
        WatchRequest(
            options.folder,
            options.kit,
            port=options.port,
            opens_browser=options.open,
            wait=options.wait,
        )
    )
