"""`fedminmax site check`: what would leave this site, in plain words."""

from dataclasses import dataclass, replace
from pathlib import Path

from fedminmax.cli.say import say
from fedminmax.cli.tables import print_table, wide_console
from fedminmax.core.counted import counted
from fedminmax.core.errors import InputError
from fedminmax.data.tables.config import read_config
from fedminmax.data.tables.file_format import FormatChanges
from fedminmax.federation.flare_kits import settle_site, site_name
from fedminmax.federation.site_check import agree_to, check_site
from fedminmax.federation.site_settings import (
    SETTINGS_FILE,
    SiteSettings,
    SmallGroups,
    read_site_settings,
)


@dataclass(frozen=True)
class PolicyChanges:
    """What a call changes in a site's policy; None leaves it as the kit has it."""

    minimum_group: int | None
    small_groups: SmallGroups | None
    minimum_sites: int | None
    max_runs: int | None

    def apply(self, settings: SiteSettings) -> SiteSettings:
        """Return the settings with these changes."""
        changed = {name: value for name, value in vars(self).items() if value is not None}
        return replace(settings, **changed)


def check(
    kit: Path, config: Path, data: Path, changes: PolicyChanges, own_format: FormatChanges
) -> None:
    """Read the table, show what would leave, and note what the site agrees to in its kit."""
    site = site_name(kit)
    if not config.is_file():
        raise InputError(
            f"{config} does not exist; ask the coordinator for the agreed configuration, and put "
            "it there or name it with --config"
        )
    agreed = read_config(config)
    settings = changes.apply(replace(_noted(kit, data), data=data.absolute()))
    settings = replace(settings, format=own_format.over(settings.format))
    settings = agree_to(agreed, settings, site)
    found = check_site(agreed, settings, site)
    settle_site(kit, settings)
    console = wide_console()
    lines = [[name, f"{rows:,}"] for name, rows in found.groups.items()]
    print_table(console, f"Training rows at {site}", ["group", "rows"], lines)
    if found.hidden:
        hidden = ", ".join(
            f"{name} ({counted(rows, 'row')})" for name, rows in found.hidden.items()
        )
        console.print(f"Merged, and not told by name: {hidden}.", markup=False, highlight=False)
    for warning in found.warnings:
        say(f"warning: {warning}")
    for words in found.leaves:
        console.print(f"Leaves {site} {words}.", markup=False, highlight=False)
    console.print(
        f"Stays at {site}: every row, the file's name and path, all logs.",
        f"Policy of {site}: {_policy(settings, site)}.",
        f"Noted in {kit / 'local'}; to take part: fedminmax site start --kit {kit}",
        sep="\n",
        markup=False,
        highlight=False,
    )


def _noted(kit: Path, data: Path) -> SiteSettings:
    """Return what the kit has noted, by an earlier check or by hand; else the default policy."""
    path = kit / "local" / SETTINGS_FILE
    return read_site_settings(path) if path.exists() else SiteSettings(data)


def _policy(settings: SiteSettings, site: str) -> str:
    """Say what stands, so that an administrator can compare it with what was meant."""
    if settings.minimum_group == 1:
        words = "groups of any size are told of"
    elif settings.small_groups is SmallGroups.MERGE:
        words = f"groups with fewer than {settings.minimum_group:,} training rows are merged"
    else:
        words = f"no part if a group has fewer than {settings.minimum_group:,} training rows"
    words += (
        f"; at least {counted(settings.minimum_sites, 'site')} in every run, at most "
        f"{counted(settings.max_runs, 'run')} of this configuration"
    )
    own = {name: value for name, value in vars(settings.format).items() if value is not None}
    if own:
        listed = ", ".join(f"{name} {value!r}" for name, value in own.items())
        words += f"; the table is read with {listed}"
    if settings.holder_column is not None:
        words += f"; rows with '{settings.owner or site}' in column '{settings.holder_column}'"
    return words
