"""`fedminmax watch`: a run in the browser while it goes on, until Ctrl-C."""

import sys
import time
import webbrowser
from collections.abc import Generator
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from fedminmax.cli.terminal import say
from fedminmax.core.errors import InputError
from fedminmax.live.live_run import LiveRun
from fedminmax.live.watch import watch_folder
from fedminmax.report.live_server import serve_live

SECONDS_BETWEEN_SIGNALS = 0.5


@dataclass(frozen=True)
class WatchRequest:
    """The options of one call: a run folder or a person's kit; ``wait`` is in seconds."""

    folder: Path | None
    kit: Path | None
    _: KW_ONLY
    port: int
    opens_browser: bool
    wait: float


def watch(request: WatchRequest) -> None:
    """Serve the page until Ctrl-C."""
    # The engine's login, in another thread, puts its own stream in the place of sys.stdout.
    out = sys.stdout
    with serve_live(request.port, _source(request)) as server:
        words = f"Watching at {server.address} (for this machine alone; Ctrl-C ends it)"
        print(words, file=out, flush=True)
        if request.opens_browser and not webbrowser.open(server.address):
            say("no browser could be opened; open the address yourself")
        try:
            # In steps: a wait without end is not woken by a signal that another thread received.
            while True:
                time.sleep(SECONDS_BETWEEN_SIGNALS)
        except KeyboardInterrupt:
            print("Stopped watching; the run is not affected.", file=out, flush=True)


def _source(request: WatchRequest) -> Generator[LiveRun]:
    if (request.folder is None) == (request.kit is None):
        raise InputError("give a run folder, or a kit with --kit, and not both")
    if request.folder is not None:
        if request.folder.exists() and not request.folder.is_dir():
            raise InputError(f"{request.folder} is a file; give a run folder")
        return watch_folder(request.folder, request.wait)
    from fedminmax.live.watch_network import watch_server
    from fedminmax.network.flare.federation_file import read_sites_of

    kit = request.kit or Path()
    read_sites_of(kit)
    return watch_server(kit, request.wait)
