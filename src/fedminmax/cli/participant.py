"""Run a server or a site of a kit until the user ends it; start it again if it dies."""

import time
from collections.abc import Callable
from pathlib import Path

import psutil

from fedminmax.cli.say import say
from fedminmax.core.errors import InputError
from fedminmax.federation.flare_kits import site_name
from fedminmax.federation.flare_processes import OUTPUT_FILE, start_server, start_site
from fedminmax.federation.process_family import end
from fedminmax.federation.site_settings import SETTINGS_FILE, read_site_settings

SECONDS_BETWEEN_LOOKS = 1.0
# A process that dies at once would die again and again.
SECONDS_OF_A_LIFE = 20.0


def run_site(kit: Path) -> None:
    """Run a site whose table was checked before."""
    settings = read_site_settings(kit / "local" / SETTINGS_FILE)
    _run(kit, start_site, f"site {site_name(kit)} takes part with {settings.data}")


def run_server(kit: Path) -> None:
    """Run the server."""
    if not (kit / "startup" / "fed_server.json").is_file():
        raise InputError(f"{kit} is no server's kit; 'fedminmax federation create' makes one")
    _run(kit, start_server, "the server runs")


def _run(kit: Path, start: Callable[[Path], psutil.Popen], words: str) -> None:
    kit = kit.absolute()
    say(f"{words}; end it with Ctrl-C")
    while True:
        born = time.monotonic()
        process = start(kit)
        try:
            while process.poll() is None:
                time.sleep(SECONDS_BETWEEN_LOOKS)
        finally:
            end([process])
        if time.monotonic() - born < SECONDS_OF_A_LIFE:
            raise InputError(f"it ended at once; the reason is in {kit / OUTPUT_FILE}")
        say("it died and is started again")
