"""`fedminmax compare`: methods side by side, run by run, resumable at any moment.

The runs of a study have progress bars on the terminal, or a table of their status.
"""

import argparse
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from fedminmax import __version__
from fedminmax.cli.main import say
from fedminmax.cli.terminal import display, print_table, wide_console
from fedminmax.core.errors import DivergedError, InputError
from fedminmax.core.files import write_json, write_text
from fedminmax.core.messages import Reveals
from fedminmax.core.text import duration_text, markdown_table
from fedminmax.findings.convergence import notes_on_convergence
from fedminmax.methods.catalogue import CARDS, unusable_methods
from fedminmax.runs.folder import RESULTS_FILE, TABLE_FILE, check_folder, claim_folder
from fedminmax.studies import finish
from fedminmax.studies.comparison import (
    HEADERS,
    ComparisonRow,
    Entry,
    check_comparison,
    comparison_as_json,
    comparison_cells,
    comparison_notes,
    draw_comparison,
    finish_comparison,
    parse_entry,
    plan_comparison,
    read_failures,
    summarise_comparison,
)
from fedminmax.studies.scores import read_results
from fedminmax.studies.study import Length, RunPlan, Study

# In a list of methods: every method, with its defaults.
ALL = "all"
# Options that apply to every method that has such a setting.
COMMON = ("learning_rate", "adversary_rate", "epochs", "batch_size")


@dataclass(frozen=True)
class Call:
    """One call of an experiment: its folder, time budget, and what to print."""

    folder: Path
    budget: float | None
    as_json: bool
    status_only: bool


def compare(data: str, study: Study, options: argparse.Namespace) -> None:
    """Finish the runs of all entries and print the table of the requested ones."""
    given = {name: getattr(options, name) for name in COMMON}
    common = {name: value for name, value in given.items() if value is not None}
    entries = parse_entries(options.methods, common)
    folder = options.out or Path("runs", f"compare-{data}")
    call = Call(folder, options.budget, as_json=options.json, status_only=options.status)
    length = Length(options.rounds, options.local_rounds, options.fast_rounds)
    plans = plan_comparison(entries, options.settings, range(options.seeds), length, study.config)
    identity = {"data": data, "common": common} | asdict(study.config)
    if call.status_only:
        print_status(plans, identity, call)
        return
    shown = Reveals.SUMS if options.sums_only else Reveals.OWN_VECTOR
    plans, skipped = _usable(plans, check_comparison(study, plans, shown), options.methods)
    claim_folder(folder, {"version": __version__} | identity)
    ticks = finish_comparison(study, plans, folder, call.budget or math.inf)
    missing = show_ticks(f"compare {data}", ticks, plans, call)
    labels = list(dict.fromkeys(plan.title for plan in plans))
    keys = {(plan.setting, plan.title, plan.fold) for plan in plans}
    results = [r for r in read_results(folder) if (r.setting, r.method, r.fold) in keys]
    failed = [f for f in read_failures(folder) if (f.setting, f.method, f.fold) in keys]
    settings = list(dict.fromkeys(plan.setting for plan in plans))
    rows = summarise_comparison(results, settings, labels)
    reasons = [f"{f.setting} {f.method}, seed {f.fold}, failed: {f.reason}" for f in failed]
    notes = [
        *comparison_notes([*skipped, *reasons], options.seeds, missing - len(failed)),
        *notes_on_convergence([row.converged for row in rows]),
    ]
    _write(rows, notes, identity, folder)
    _print(rows, notes, call, data)
    if failed:
        raise DivergedError(f"{len(failed)} of {len(plans)} runs failed; the others are above")


def parse_entries(methods: str, common: dict[str, object]) -> list[Entry]:
    """Parse a comma-separated list of methods, in which "all" means every method."""
    if ALL in split_list(methods):
        for complaint in unusable_methods():
            say(f"warning: {complaint}")
    parts = [key for part in split_list(methods) for key in (CARDS if part == ALL else [part])]
    return [parse_entry(part, CARDS, common) for part in dict.fromkeys(parts)]


def split_list(text: str) -> list[str]:
    """Return the parts of a comma-separated list."""
    return [part.strip() for part in text.split(",")]


def _usable(
    plans: list[RunPlan], reasons: dict[str, str], methods: str
) -> tuple[list[RunPlan], list[str]]:
    """Skip methods that cannot run if "all" was given; refuse one that was asked for by name."""
    if reasons and ALL not in split_list(methods):
        raise InputError(next(iter(reasons.values())))
    usable = [plan for plan in plans if plan.title not in reasons]
    return usable, [f"{name} is skipped: {reason}" for name, reason in reasons.items()]


def _write(
    rows: Sequence[ComparisonRow], notes: list[str], config: dict[str, object], folder: Path
) -> None:
    content = {"config": config, "rows": comparison_as_json(rows), "notes": notes}
    write_json(folder / RESULTS_FILE, content)
    table = markdown_table(HEADERS, comparison_cells(rows))
    write_text(folder / TABLE_FILE, "\n\n".join([table, *notes]) + "\n")
    if rows:
        draw_comparison(rows, folder / "risks")


def _print(rows: Sequence[ComparisonRow], notes: list[str], call: Call, data: str) -> None:
    if call.as_json:
        print(json.dumps({"rows": comparison_as_json(rows), "notes": notes}))
        return
    console = wide_console()
    title = f"Methods on {data}"
    print_table(console, title, HEADERS, comparison_cells(rows), names=2, sections=True)
    for note in notes:
        console.print(note)
    folder = call.folder
    names = (RESULTS_FILE, TABLE_FILE, "risks.png", "risks.svg")
    paths = ", ".join(str(folder / name) for name in names)
    console.print(f"Results: {paths}", soft_wrap=True)


def show_ticks(
    title: str, ticks: Iterable[finish.Tick], plans: Sequence[RunPlan], call: Call
) -> int:
    """Advance the runs, with progress bars on the terminal; return how many are left."""
    costs = [plan.cost for plan in plans]
    with display(title, sum(costs)) as bars:
        for tick in ticks:
            plan = plans[tick.run]
            if tick.warning:
                say(f"warning: {tick.warning}")
            bars.describe(f"{plan.setting} {plan.title}, fold {plan.fold}, round {tick.round:,}")
            bars.show_work(sum(costs[: tick.run]) + plan.cost * tick.round / plan.rounds)
    return sum(not finish.is_finished(plan, finish.run_folder(call.folder, plan)) for plan in plans)


def print_status(plans: Sequence[RunPlan], config: Mapping[str, object], call: Call) -> None:
    """Print which runs are finished and which remain, with an estimate of their time."""
    check_folder(call.folder, {"version": __version__} | dict(config))
    statuses = finish.read_status(plans, call.folder)
    left = [finish.seconds_left(status, statuses) for status in statuses]
    if call.as_json:
        rows = [_as_json(status, rest) for status, rest in zip(statuses, left, strict=True)]
        print(json.dumps({"folder": str(call.folder), "runs": rows}))
        return
    console = wide_console()
    headers = ("Setting", "Method", "Fold", "Round", "of", "Spent", "Left, about")
    lines = [_cells(status, rest) for status, rest in zip(statuses, left, strict=True)]
    print_table(console, f"Runs in {call.folder}", headers, lines, names=2)
    console.print(_summary(statuses, left))


def _summary(statuses: list[finish.RunStatus], left: list[float | None]) -> str:
    finished = sum(status.finished for status in statuses)
    estimates = [rest for rest in left if rest is not None]
    total = (
        duration_text(sum(estimates))
        if len(estimates) == len(left)
        else "unknown before the first round"
    )
    return f"{finished} of {len(statuses)} runs are finished; time left: {total}."


def _cells(status: finish.RunStatus, rest: float | None) -> tuple[str, ...]:
    plan = status.plan
    return (
        plan.setting,
        plan.title,
        str(plan.fold),
        str(status.round),
        str(plan.rounds),
        duration_text(status.seconds),
        "done" if status.finished else _rest(rest),
    )


def _rest(seconds: float | None) -> str:
    return "?" if seconds is None else duration_text(seconds)


def _as_json(status: finish.RunStatus, rest: float | None) -> dict[str, object]:
    plan = status.plan
    return {
        "setting": plan.setting,
        "method": plan.title,
        "fold": plan.fold,
        "round": status.round,
        "rounds": plan.rounds,
        "finished": status.finished,
        "seconds": status.seconds,
        "seconds_left": rest,
    }
