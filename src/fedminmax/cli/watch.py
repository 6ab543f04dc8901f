"""`fedminmax watch`: a run in the browser while it goes on, until Ctrl-C."""

import argparse
import sys
import time
import webbrowser
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

from fedminmax.cli.options import Commands, add_command, duration, port_number
from fedminmax.core.errors import InputError

if TYPE_CHECKING:
    from fedminmax.live.watch import LiveRun

SECONDS_BETWEEN_SIGNALS = 0.5


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "watch",
        watch,
        short="show a run in the browser while it trains",
        text="Serve one page to this machine alone: risk by group and weights by round as they "
        "come, the optimality gap, who answered, time left and "
        "privacy budget. RUN is a folder that 'fedminmax train' or 'fedminmax federation' writes, "
        "has written, or will write; with --kit it is the newest run at the server. Nothing is "
        "changed, and Ctrl-C ends the page, not the run.",
        example="watch runs/clinic --open",
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


def watch(options: argparse.Namespace) -> None:
    """Serve the page until Ctrl-C."""
    from fedminmax.cli.main import say
    from fedminmax.report.live_server import serve_live

    # The engine's login, in another thread, puts its own stream in the place of sys.stdout.
    out = sys.stdout
    with serve_live(options.port, live_source(options)) as server:
        words = f"Watching at {server.address} (for this machine alone; Ctrl-C ends it)"
        print(words, file=out, flush=True)
        if options.open and not webbrowser.open(server.address):
            say("no browser could be opened; open the address yourself")
        try:
            # In steps: a wait without end is not woken by a signal that another thread received.
            while True:
                time.sleep(SECONDS_BETWEEN_SIGNALS)
        except KeyboardInterrupt:
            print("Stopped watching; the run is not affected.", file=out, flush=True)


def live_source(options: argparse.Namespace) -> Generator["LiveRun"]:
    """Return what looks at the run folder, or at the server of a kit."""
    folder, kit = options.folder, options.kit
    if (folder is None) == (kit is None):
        raise InputError("give a run folder, or a kit with --kit, and not both")
    if folder is not None:
        from fedminmax.live.watch import watch_folder

        if folder.exists() and not folder.is_dir():
            raise InputError(f"{folder} is a file; give a run folder")
        return watch_folder(folder, options.wait)
    from fedminmax.live.watch_network import watch_server
    from fedminmax.network.flare.federation_file import read_sites_of

    read_sites_of(kit)
    return watch_server(kit, options.wait)
