"""Run the site or the server of a kit until the user stops it, and say whether it runs.

A process that dies is restarted. `site status`, and `federation status` of a server's kit, exit
with code 0 if it runs here and reaches its server, else 1: healthchecks of containers read nothing
else.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from fedminmax.cli.main import say
from fedminmax.core.errors import InputError
from fedminmax.network.flare.federation_file import check_own_key
from fedminmax.network.flare.kits import make_private, site_name
from fedminmax.network.flare.local import (
    OUTPUT_FILE,
    has_registered,
    output_size,
    start_server,
    start_site,
)
from fedminmax.network.flare.presence import (
    SITE_FILE,
    connection_problem,
    is_server_kit,
    only_one,
    presence,
)
from fedminmax.network.flare.process_tree import end
from fedminmax.network.site.settings import SETTINGS_FILE, read_site_settings

UNHEALTHY = 1
POLL_SECONDS = 1.0
# A process that dies sooner is not restarted: it would die again.
MIN_UPTIME = 20.0
RETRY_SECONDS = 15.0
WAITING = "the server was reached, but has not accepted this site yet"


def run_site(options: argparse.Namespace) -> None:
    """Run a site whose table was checked before; it takes part once the server accepts it."""
    kit = options.kit
    settings = read_site_settings(kit / "local" / SETTINGS_FILE)
    name = site_name(kit)
    with only_one(kit):
        check_own_key(kit, name)
        _close_kit(kit)
        say(f"site {name} starts; stop it with Ctrl-C")
        kit = kit.absolute()
        _run(kit, start_site, Registration(kit, f"site {name} takes part with {settings.data}"))


def run_server(options: argparse.Namespace) -> None:
    """Run the server of a kit."""
    kit = options.kit
    if not is_server_kit(kit):
        raise InputError(f"{kit} is not a server's kit; 'fedminmax federation create' makes one")
    with only_one(kit):
        _close_kit(kit)
        say("the server runs; stop it with Ctrl-C")
        _run(kit.absolute(), start_server, None)


def _close_kit(kit: Path) -> None:
    """Let nobody else look into the kit, and say so if somebody could."""
    for key in make_private(kit):
        say(
            f"warning: other users of this machine could read {key}, and cannot any longer; if one "
            "of them may have, ask the coordinator for a new kit"
        )


class Registration:
    """Reports whether a site has reached its server, each message once."""

    def __init__(self, kit: Path, message: str) -> None:
        self._kit = kit
        self._message = message
        self._done = False
        self._last_trouble: str | None = None
        self._from = output_size(kit)
        self._next = time.monotonic() + RETRY_SECONDS

    def check(self) -> None:
        """Report any change; nothing more after the site is registered."""
        if self._done:
            return
        if has_registered(self._kit, self._from):
            self._done = True
            say(self._message)
        elif time.monotonic() > self._next:
            trouble = connection_problem(self._kit) or WAITING
            if trouble != self._last_trouble:
                say(f"{trouble}; trying again")
            self._last_trouble = trouble
            self._next = time.monotonic() + RETRY_SECONDS


def _run(
    kit: Path, start: Callable[[Path], psutil.Popen], registration: Registration | None
) -> None:
    while True:
        born = time.monotonic()
        process = start(kit)
        try:
            while process.poll() is None:
                time.sleep(POLL_SECONDS)
                if registration is not None:
                    registration.check()
        finally:
            end([process])
        if time.monotonic() - born < MIN_UPTIME:
            raise InputError(
                f"the site's process exited at once; the reason is in {kit / OUTPUT_FILE}"
            )
        say("the process ended unexpectedly and is being restarted")


def show_kit_status(options: argparse.Namespace) -> None:
    """Print one line about the participant of a kit; exit with code 1 if something is wrong."""
    kit = options.kit
    if not is_server_kit(kit) and not (kit / "startup" / SITE_FILE).is_file():
        raise InputError(f"{kit} is not a site's kit; give the folder that the coordinator sent")
    state = presence(kit)
    healthy = state.process is not None and state.problem is None
    if options.json:
        print(json.dumps({"healthy": healthy, "process": state.process, "problem": state.problem}))
    elif state.process is None:
        print(f"{kit}: not running")
    elif state.problem is not None:
        print(f"{kit}: runs as {state.process}, but {state.problem}")
    else:
        print(f"{kit}: runs as {state.process}, and its server accepts its certificate")
    if not healthy:
        sys.stdout.flush()
        sys.exit(UNHEALTHY)
