"""`fedminmax site`: check what would leave this site, and run it; also run the server of a kit.

A site or a server runs until the user stops it, and is restarted if it dies.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from fedminmax.cli.terminal import print_table, say, wide_console
from fedminmax.config.file_format import NO_CHANGES, FormatChanges, changes_between
from fedminmax.config.read import TableConfig, read_config
from fedminmax.core.errors import InputError
from fedminmax.core.text import counted
from fedminmax.network.flare.federation_file import masked_by_default
from fedminmax.network.flare.kits import make_private, site_name, write_site_settings
from fedminmax.network.flare.presence import connection_problem, is_server_kit, only_one
from fedminmax.network.flare.process_tree import end
from fedminmax.network.flare.processes import (
    OUTPUT_FILE,
    has_registered,
    output_size,
    start_server,
    start_site,
)
from fedminmax.network.flare.requests import check_own_key, write_request
from fedminmax.network.flare.roster import read_roster
from fedminmax.network.site.ledger import KEPT_FOLDER
from fedminmax.network.site.preview import agree_to, budget_of, check_site
from fedminmax.network.site.settings import (
    SETTINGS_FILE,
    SiteSettings,
    SmallGroups,
    read_site_settings,
)
from fedminmax.network.wire.plan import UNMASKED_WORDS, masked_words, threshold_for

POLL_SECONDS = 1.0
# A process that dies sooner is not restarted: it would die again.
MIN_UPTIME = 20.0
RETRY_SECONDS = 15.0
WAITING = "the server was reached, but has not accepted this site yet"


@dataclass(frozen=True)
class PolicyChanges:
    """What a call changes in a site's policy; None keeps the kit's value."""

    minimum_group: int | None
    small_groups: SmallGroups | None
    minimum_sites: int | None
    max_runs: int | None
    max_epsilon: float | None = None
    allow_other_sites: bool | None = None

    def apply(self, settings: SiteSettings) -> SiteSettings:
        """Return the settings with these changes."""
        changed = {name: value for name, value in vars(self).items() if value is not None}
        return replace(settings, **changed)


def request(site: str, folder: Path) -> None:
    """Make a site's key, and a certificate request for the coordinator."""
    key, sent = write_request(site, folder)
    say(
        f"{sent}: send it to the coordinator; {key} stays here: copy it to startup/client.key of "
        "the kit that you get"
    )


def check(
    kit: Path, config: Path, data: Path, changes: PolicyChanges, own_format: FormatChanges
) -> None:
    """Read the table, show what would leave, and record in the kit what the site agrees to."""
    site = site_name(kit)
    if not config.is_file():
        raise InputError(
            f"{config} does not exist; ask the coordinator for the agreed configuration, and put "
            "it there or name it with --config"
        )
    agreed = read_config(config)
    if agreed.secure_aggregation is None:
        agreed = replace(agreed, secure_aggregation=masked_by_default(kit))
    settings = changes.apply(replace(_recorded(kit, data), data=data.absolute()))
    settings = replace(
        settings,
        format=own_format.over(settings.format),
        agreed_format=_agreed_format(agreed, settings.owner or site),
    )
    settings = agree_to(agreed, settings, site)
    found = check_site(agreed, settings, site)
    budget = budget_of(agreed, settings, site, kit / KEPT_FOLDER)
    write_site_settings(kit, settings)
    console = wide_console()
    lines = [[name, f"{rows:,}"] for name, rows in found.groups.items()]
    print_table(console, f"Training rows at {site}", ["group", "rows"], lines)
    if found.hidden:
        hidden = ", ".join(
            f"{name} ({counted(rows, 'row')})" for name, rows in found.hidden.items()
        )
        console.print(f"Merged, names not disclosed: {hidden}.")
    for warning in found.warnings:
        say(f"warning: {warning}")
    for message in found.leaves:
        console.print(f"Leaves {site} {message}.")
    if agreed.secure_aggregation:
        least = max(threshold_for(len(read_roster(kit))), settings.minimum_sites)
        seen = f"All of it is masked: {masked_words(least)}."
    else:
        seen = f"NOT masked: {UNMASKED_WORDS}."
    console.print(seen)
    if budget is not None:
        console.print(*budget, sep="\n")
    console.print(
        f"In a run: {counted(found.planned, 'question')} planned, at most {found.questions:,} "
        f"different ones answered; what left: fedminmax site log --kit {kit}",
        f"Stays at {site}: every row, the file's name and path, all logs.",
        f"Policy of {site}: {_policy(settings, site)}.",
        f"Recorded in {kit / 'local'}; to take part: fedminmax site start --kit {kit}",
        sep="\n",
    )


def _agreed_format(agreed: TableConfig, owner: str) -> FormatChanges:
    """Return how the format of this site's file differs, by the agreed configuration."""
    for source in agreed.training:
        if source.owner == owner and source.format is not None:
            return changes_between(agreed.format, source.format)
    return NO_CHANGES


def _recorded(kit: Path, data: Path) -> SiteSettings:
    """Return the settings in the kit, from an earlier check or by hand; else the defaults."""
    path = kit / "local" / SETTINGS_FILE
    return read_site_settings(path) if path.exists() else SiteSettings(data)


def _policy(settings: SiteSettings, site: str) -> str:
    """Describe the policy in force, so that an administrator can check it."""
    if settings.minimum_group == 1:
        policy = "groups of any size are disclosed"
    elif settings.small_groups is SmallGroups.MERGE:
        policy = f"groups with fewer than {settings.minimum_group:,} training rows are merged"
    else:
        policy = (
            f"does not take part if a group has fewer than {settings.minimum_group:,} training rows"
        )
    policy += (
        f"; at least {counted(settings.minimum_sites, 'site')} in every run, at most "
        f"{counted(settings.max_runs, 'run')} on this table"
    )
    if settings.allow_other_sites:
        policy += "; totals over other sets of sites are allowed, which tell about single sites"
    if settings.max_epsilon is not None:
        policy += f"; runs with noise may spend epsilon {settings.max_epsilon:g} on this table"
    own = {name: value for name, value in vars(settings.file_format).items() if value is not None}
    if own:
        listed = ", ".join(f"{name} {value!r}" for name, value in own.items())
        policy += f"; the table is read with {listed}"
    if settings.site_column is not None:
        policy += f"; rows with '{settings.owner or site}' in column '{settings.site_column}'"
    return policy


def run_site(kit: Path) -> None:
    """Run a site whose table was checked before; it takes part once the server accepts it."""
    settings = read_site_settings(kit / "local" / SETTINGS_FILE)
    name = site_name(kit)
    with only_one(kit):
        check_own_key(kit, name)
        _close_kit(kit)
        say(f"site {name} starts; stop it with Ctrl-C")
        kit = kit.absolute()
        _run(kit, start_site, Registration(kit, f"site {name} takes part with {settings.data}"))


def run_server(kit: Path) -> None:
    """Run the server."""
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
