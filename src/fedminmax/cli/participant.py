"""Run a server or a site of a kit until the user ends it; start it again if it dies."""

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from fedminmax.cli.say import say
from fedminmax.core.errors import InputError
from fedminmax.core.files import write_text
from fedminmax.core.lock_file import held
from fedminmax.federation.flare_kits import site_name
from fedminmax.federation.flare_processes import (
    OUTPUT_FILE,
    connection_trouble,
    has_registered,
    output_size,
    start_server,
    start_site,
)
from fedminmax.federation.process_family import end
from fedminmax.federation.site_settings import SETTINGS_FILE, read_site_settings

SECONDS_BETWEEN_LOOKS = 1.0
# A process that dies at once would die again and again.
SECONDS_OF_A_LIFE = 20.0
SECONDS_BETWEEN_TRIES = 15.0
LOCK_FILE = "running.lock"
RUNNING_FILE = "running.txt"
WAITING = "the server was reached, but has not accepted this site yet; trying again"


def run_site(kit: Path) -> None:
    """Run a site whose table was checked before; it takes part when the server knows it."""
    settings = read_site_settings(kit / "local" / SETTINGS_FILE)
    name = site_name(kit)
    with _alone(kit):
        say(f"site {name} starts; end it with Ctrl-C")
        kit = kit.absolute()
        _run(kit, start_site, Registration(kit, f"site {name} takes part with {settings.data}"))


def run_server(kit: Path) -> None:
    """Run the server."""
    if not (kit / "startup" / "fed_server.json").is_file():
        raise InputError(f"{kit} is no server's kit; 'fedminmax federation create' makes one")
    with _alone(kit):
        say("the server runs; end it with Ctrl-C")
        _run(kit.absolute(), start_server, None)


class Registration:
    """Tells the user whether a site has reached its server, each thing once."""

    def __init__(self, kit: Path, words: str) -> None:
        self._kit = kit
        self._words = words
        self._done = False
        self._told: str | None = None
        self._from = output_size(kit)
        self._next = time.monotonic() + SECONDS_BETWEEN_TRIES

    def look(self) -> None:
        """Look once more; after the site was registered there is nothing more to tell."""
        if self._done:
            return
        if has_registered(self._kit, self._from):
            self._done = True
            say(self._words)
        elif time.monotonic() > self._next:
            trouble = connection_trouble(self._kit) or WAITING
            if trouble != self._told:
                say(trouble)
            self._told = trouble
            self._next = time.monotonic() + SECONDS_BETWEEN_TRIES


@contextmanager
def _alone(kit: Path) -> Iterator[None]:
    """Hold the kit: two processes with one certificate would throw each other out of the server."""
    note = kit / RUNNING_FILE
    with held(kit / LOCK_FILE) as ours:
        if not ours:
            who = note.read_text(encoding="utf-8").strip() if note.exists() else "another process"
            raise InputError(f"{kit} is in use by {who}; end that first, or leave it running")
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        write_text(note, f"process {os.getpid()} on {socket.gethostname()}, since {since}\n")
        yield
        note.unlink(missing_ok=True)


def _run(
    kit: Path, start: Callable[[Path], psutil.Popen], registration: Registration | None
) -> None:
    while True:
        born = time.monotonic()
        process = start(kit)
        try:
            while process.poll() is None:
                time.sleep(SECONDS_BETWEEN_LOOKS)
                if registration is not None:
                    registration.look()
        finally:
            end([process])
        if time.monotonic() - born < SECONDS_OF_A_LIFE:
            raise InputError(f"it ended at once; the reason is in {kit / OUTPUT_FILE}")
        say("it died and is started again")
