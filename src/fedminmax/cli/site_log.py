"""`fedminmax site log`: what left this site, from its own log, and the privacy budget it spent."""

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from fedminmax.cli.terminal import print_table, wide_console
from fedminmax.core.errors import InputError
from fedminmax.core.privacy.ledger import Spent, read_ledger
from fedminmax.core.text import counted
from fedminmax.network.flare.kits import site_name
from fedminmax.network.site.journal import KEPT_EVENTS, KEPT_FOLDER, Entry, Event, read_journal
from fedminmax.network.site.privacy import SPENT_FILE

DIGITS_SHOWN = 16
HEADERS = ("time (UTC)", "question", "round", "bytes", "numbers", "SHA-256")
NO_RUN = "before a plan was read"


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
