"""`fedminmax site check`: read a site's table, and show what would leave the site."""

import argparse
from dataclasses import replace
from pathlib import Path

from rich.text import Text

from fedminmax.cli.federation_kits import AGREED_FILE
from fedminmax.cli.messages import say
from fedminmax.cli.options import format_changes
from fedminmax.cli.terminal import print_table, wide_console
from fedminmax.config.file_format import NO_CHANGES, FormatChanges, changes_between
from fedminmax.config.read import TableConfig, read_config
from fedminmax.core.errors import InputError
from fedminmax.core.text import counted
from fedminmax.findings.privacy import WITHOUT_AGGREGATION, with_aggregation
from fedminmax.network.flare.federation_file import masked_by_default, read_roster
from fedminmax.network.flare.kits import site_name, write_site_settings
from fedminmax.network.site.journal import KEPT_FOLDER
from fedminmax.network.site.preview import agree_to, budget_of, check_site
from fedminmax.network.site.settings import (
    SETTINGS_FILE,
    SiteSettings,
    SmallGroups,
    read_site_settings,
)
from fedminmax.network.wire.plan import threshold_for

# Options that change a site's policy; what is not given keeps the kit's value.
POLICY = (
    *("suppress_below", "small_groups", "minimum_sites", "max_runs", "max_epsilon"),
    "allow_other_sites",
)


def check(options: argparse.Namespace) -> None:
    """Read the table, show what would leave, and record in the kit what the site agrees to."""
    kit, data = options.kit, options.data
    config = options.config or kit / AGREED_FILE
    site = site_name(kit)
    if not config.is_file():
        raise InputError(
            f"{config} does not exist; ask the coordinator for the agreed configuration, and put "
            "it there or name it with --config"
        )
    agreed = read_config(config)
    if agreed.secure_aggregation is None:
        agreed = replace(agreed, secure_aggregation=masked_by_default(kit))
    given = {name: getattr(options, name) for name in POLICY}
    changed = {name: value for name, value in given.items() if value is not None}
    if options.small_groups is not None:
        changed["small_groups"] = SmallGroups(options.small_groups)
    settings = replace(_recorded(kit, data), data=data.absolute(), **changed)
    settings = replace(
        settings,
        format=format_changes(options).over(settings.format),
        agreed_format=_agreed_format(agreed, settings.owner or site),
    )
    settings = agree_to(agreed, settings, site)
    checked = check_site(agreed, settings, site)
    budget = budget_of(agreed, settings, site, kit / KEPT_FOLDER)
    write_site_settings(kit, settings)
    console = wide_console()
    lines = [[name, f"{rows:,}"] for name, rows in checked.groups.items()]
    print_table(console, f"Training rows at {site}", ["group", "rows"], lines)
    if checked.hidden:
        hidden = ", ".join(
            f"{name} ({counted(rows, 'row')})" for name, rows in checked.hidden.items()
        )
        console.print(f"Merged, names not disclosed: {hidden}.")
    for warning in checked.warnings:
        say(f"warning: {warning}")
    leaves = [message.partition(": ") for message in checked.leaves]
    lines = [[when, what] for when, _, what in leaves]
    print_table(console, f"Leaves {site}", ["when", "what"], lines, sentences=1)
    if agreed.secure_aggregation:
        least = max(threshold_for(len(read_roster(kit))), settings.minimum_sites)
        seen = f" Secure aggregation masks all of it: {with_aggregation(least)}."
    else:
        seen = f" NO secure aggregation: {WITHOUT_AGGREGATION}."
    stays = "every row, the file's name and path and all logs stay there"
    console.print(Text.assemble((f"{site} can take part: {stays}.", "bold"), seen))
    if budget is not None:
        console.print(*budget, sep="\n")
    console.print(f"Policy of {site}: {_policy(settings, site)}.")
    questions = counted(checked.planned, "question")
    for line in (
        f"In a run: {questions} planned, at most {checked.questions:,} different ones answered",
        f"Recorded in {kit / 'local'}. Next:",
        f"  fedminmax site start --kit {kit}    take part",
        f"  fedminmax site log --kit {kit}      see what left",
    ):
        console.print(line, soft_wrap=True)


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
    if settings.suppress_below == 1:
        policy = "groups of any size are disclosed"
    elif settings.small_groups is SmallGroups.MERGE:
        policy = f"groups with fewer than {settings.suppress_below:,} training rows are merged"
    else:
        few = f"fewer than {settings.suppress_below:,} training rows"
        policy = f"does not take part if a group has {few}"
    policy += (
        f"; at least {counted(settings.minimum_sites, 'site')} in every run, at most "
        f"{counted(settings.max_runs, 'run')} on this table"
    )
    if settings.allow_other_sites:
        policy += "; totals over other sets of sites are allowed, which tell about single sites"
    if settings.max_epsilon is not None:
        policy += f"; runs with noise may spend epsilon {settings.max_epsilon:g} on this table"
    settings_of_file = settings.file_format.settings
    if settings_of_file:
        read_with = ", ".join(f"{name} {value!r}" for name, value in settings_of_file.items())
        policy += f"; the table is read with {read_with}"
    if settings.site_column is not None:
        policy += f"; rows with '{settings.owner or site}' in column '{settings.site_column}'"
    return policy
