"""`fedminmax site check` shows what would leave a site, and `fedminmax site log` what left it.

The log is the site's own; with its totals comes the privacy budget that runs have spent.
"""

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.text import Text

from fedminmax.cli.main import say
from fedminmax.cli.options import format_changes
from fedminmax.cli.site import AGREED_FILE
from fedminmax.cli.terminal import print_table, wide_console
from fedminmax.config.file_format import NO_CHANGES, FormatChanges, changes_between
from fedminmax.config.read import TableConfig, read_config
from fedminmax.core.errors import InputError
from fedminmax.core.privacy.ledger import Spent, read_ledger
from fedminmax.core.text import counted
from fedminmax.findings.disclosure import WITHOUT_AGGREGATION, with_aggregation
from fedminmax.network.flare.federation_file import masked_by_default, read_roster
from fedminmax.network.flare.kits import site_name, write_site_settings
from fedminmax.network.site.journal import KEPT_EVENTS, KEPT_FOLDER, Entry, Event, read_journal
from fedminmax.network.site.preview import agree_to, budget_of, check_site
from fedminmax.network.site.privacy import SPENT_FILE
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
DIGITS_SHOWN = 16
HEADERS = ("time (UTC)", "question", "round", "bytes", "numbers", "SHA-256")
NO_RUN = "before a plan was read"


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
    changed = {name: getattr(options, name) for name in POLICY}
    changed = {name: value for name, value in changed.items() if value is not None}
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


@dataclass(frozen=True)
class LogTotals:
    """How many questions were answered and refused, and how many bytes left.

    ``masked``, ``plain`` and ``without_numbers`` are parts of ``bytes``; answers that ``failed``
    left as random numbers under masks.
    """

    answered: int
    failed: int
    refused: int
    bytes: int
    masked: int
    plain: int
    without_numbers: int


def show_log(options: argparse.Namespace) -> None:
    """Print the log of the site's messages, the newest last, and totals."""
    kit, run = options.kit, options.run_name
    site = site_name(kit)
    everything = [
        entry for entry in read_journal(kit / KEPT_FOLDER) if entry.event not in KEPT_EVENTS
    ]
    entries = [entry for entry in everything if run in (None, entry.run)]
    if run is not None and not entries:
        runs = ", ".join(dict.fromkeys(entry.run for entry in everything if entry.run)) or "none"
        raise InputError(f"the log of {site} has no run '{run}'; its runs: {runs}")
    totals = totals_of(entries)
    ledger = read_ledger(kit / KEPT_FOLDER / SPENT_FILE)
    spent = [entry for entry in ledger if run in (None, entry.run)]
    if options.json:
        for entry in entries:
            print(json.dumps(entry.as_json()))
        budget = [
            {name: getattr(entry, name) for name in ("run", "unit", "epsilon", "delta")}
            for entry in spent
        ]
        print(json.dumps({"totals": asdict(totals) | {"budget": budget}}))
        return
    console = wide_console()
    for lines_of_run in _newest_run_last(entries):
        title = f"Messages that left {site}: {lines_of_run[0].run or NO_RUN}"
        lines = [_cells(entry) for entry in lines_of_run]
        print_table(console, title, HEADERS, lines, names=2, sentences=1)
    text = f"{_sentence(site, totals)} {_budget(spent)}" if entries else _sentence(site, totals)
    console.print(text)


def totals_of(entries: Sequence[Entry]) -> LogTotals:
    """Add up what left."""
    events = Counter(entry.event for entry in entries)
    parts: Counter[bool | None] = Counter()
    for entry in entries:
        parts[entry.masked] += entry.bytes or 0
    return LogTotals(
        answered=events[Event.SENT],
        failed=events[Event.FAILED],
        refused=events[Event.REFUSED],
        bytes=parts.total(),
        masked=parts[True],
        plain=parts[False],
        without_numbers=parts[None],
    )


def _newest_run_last(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Return the lines of each run, in the order of their last lines."""
    runs: dict[str, list[Entry]] = {}
    for entry in entries:
        runs.setdefault(entry.run, []).append(entry)
    last = {entry.run: number for number, entry in enumerate(entries)}
    return sorted(runs.values(), key=lambda lines: last[lines[0].run])


def _cells(entry: Entry) -> list[str]:
    time = entry.time.replace("T", " ").removesuffix("Z")
    size = "" if entry.bytes is None else f"{entry.bytes:,}"
    kinds = {True: "masked", False: "plain", None: ""}
    kind, note = kinds[entry.masked], entry.digest[:DIGITS_SHOWN]
    if entry.event is Event.REFUSED:
        kind, note = "refused", entry.reason
    elif entry.event is Event.FAILED:
        kind, note = "failed", entry.reason
    return [time, _question(entry), str(entry.round or ""), size, kind, note]


def _question(entry: Entry) -> str:
    question = entry.question
    words = question.endpoint.value + (f" {question.phase + 1}" if question.phase else "")
    words += f" (run {question.run + 1})" if question.run else ""
    return words if entry.call is None else f"{words}: {entry.call.value}"


def _sentence(site: str, totals: LogTotals) -> str:
    """Say the totals."""
    if not totals.answered + totals.refused:
        return f"Nothing has left {site} yet."
    text = (
        f"{counted(totals.answered, 'question')} answered, {totals.refused:,} refused; "
        f"{totals.bytes:,} bytes left {site}: {totals.masked:,} masked, {totals.plain:,} not "
        f"masked, {totals.without_numbers:,} without numbers from the table."
    )
    if totals.failed:
        text += f" {counted(totals.failed, 'answer')} could not be computed: the reasons are above."
    return text


def _budget(spent: Sequence[Spent]) -> str:
    """Say what runs with a privacy guarantee spent."""
    if not spent:
        return "No privacy budget was spent: the numbers have no noise."
    runs = "; ".join(
        f"run {entry.run}: epsilon {entry.epsilon:g}, delta {entry.delta:g}, unit {entry.unit}"
        for entry in spent
    )
    return f"Privacy budget spent: {runs}."
