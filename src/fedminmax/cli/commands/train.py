"""`fedminmax train`: from a configuration to a run folder, resumable at any moment.

At the end it prints the test risk by group of the method and of the baseline. With `--seeds N` it
runs the same training on N splits and prints how far the results spread. Each seed has its own run
folder, the same as `fedminmax train` with that seed makes. Another call continues with what is
left, and one with more seeds adds them.
"""

import errno
import json
import math
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from fedminmax import __version__
from fedminmax.cli.terminal import Display, display, highest_risks, print_table, say, wide_console
from fedminmax.config.overrides import Overrides
from fedminmax.config.read import read_config
from fedminmax.core.bound_text import upper_text
from fedminmax.core.errors import InputError
from fedminmax.core.files import write_json, write_text
from fedminmax.core.text import counted, markdown_table, markdown_text
from fedminmax.data.tables.load import load_federated_tables
from fedminmax.exports.saved_model import MODEL_FILE
from fedminmax.findings.records import RISK, Results, record_as_json
from fedminmax.runs.advice_text import after_training
from fedminmax.runs.convergence import no_gain_yet
from fedminmax.runs.layout import CARD_FILE, RESULTS_FILE, claim_folder
from fedminmax.runs.measure import (
    change_from,
    interval_text,
    merged_groups_text,
    metric_cells,
    small_groups_text,
)
from fedminmax.runs.plan import TableRun
from fedminmax.runs.privacy import privacy_lines
from fedminmax.runs.remarks import certificate_text, validation_text, verdict_of
from fedminmax.runs.seed_spread import (
    SeedSpread,
    spread_as_json,
    spread_cells,
    spread_notes,
    spread_over_seeds,
)
from fedminmax.runs.train import TableTraining, open_training, training_rounds
from fedminmax.training.round_record import RoundRecord

TOO_FEW = "too few rows to say"
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
SPREAD_FILE, TABLE_FILE = "seeds.json", "seeds.md"


def print_trained(folder: Path, results: Sequence[Results]) -> None:
    """Print the table of a finished run and its baseline, and where the files are."""
    console = wide_console()
    if results[0].test.rows:
        _print_risks(console, results)
        _print_personal(console, results[0])
    for own in results:
        console.print(verdict_of(own))
        proved = certificate_text(own)
        if proved:
            console.print(proved)
        if own.validation is not None:
            console.print(f"{own.method.name}: {validation_text(own)}")
    for paragraph in (*after_training(results[0]), *privacy_lines(results[0])):
        console.print(paragraph)
    for what, name in (
        ("Results", RESULTS_FILE),
        ("Card", CARD_FILE),
        ("Model", MODEL_FILE),
    ):
        console.print(f"{what}: {folder / name}")
    console.print(f"Next: fedminmax evaluate {folder}")


def _print_risks(console: Console, results: Sequence[Results]) -> None:
    tests = [result.test for result in results]
    metrics = [result.risk for result in results]
    names = [result.method.name for result in results]
    counts = [f"{own.rows:,}" for own in metrics[0].by_group]
    columns = {
        "group": [*results[0].groups, "all"],
        "rows": [*counts, f"{tests[0].rows:,}"],
    }
    for name, metric in zip(names, metrics, strict=True):
        columns[name] = [interval_text(own) for own in (*metric.by_group, metric.overall)]
    change = change_from(*results) if len(results) == 2 else None
    if change is not None:
        columns["change"] = [
            *(
                interval_text(own, like=metrics[0].overall) if own.has_enough_rows else TOO_FEW
                for own in change.by_group
            ),
            interval_text(change.overall, like=metrics[0].overall),
        ]
    title = f"Test risk by group ({100 * tests[0].confidence:g} % intervals)"
    lines = list(zip(*columns.values(), strict=True))
    print_table(console, title, list(columns), lines)
    if change is not None:
        doubt = no_gain_yet(*((own.method.name, own.converged) for own in results))
        console.print(
            f"Change: {names[0]} minus {names[1]} on the same rows; "
            f"{doubt or 'below 0 is a gain'}.",
        )
    for name, metric in zip(names, metrics, strict=True):
        if metric.worst_group is not None:
            console.print(f"Worst off with {name}: {metric.worst_group}")
    small = small_groups_text(results[0].groups, tests[0])
    for note in (small, merged_groups_text(results[0])):
        if note:
            console.print(note)


def _print_personal(console: Console, results: Results) -> None:
    """Print the scores of sites' own models, if the method has them and they have test rows."""
    own = results.personal
    if own is None or not own.rows:
        return
    title = "Personal models, each on its own site's test rows"
    print_table(console, title, *metric_cells(results, own, [RISK]))


@dataclass(frozen=True)
class Request:
    """The options of one call."""

    config: Path
    folder: Path
    _: KW_ONLY
    overrides: Overrides
    budget: float | None
    device: str
    as_json: bool


@dataclass(frozen=True)
class Outcome:
    """The results of the finished runs, the method's first; others may remain."""

    results: list[Results]
    is_finished: bool


def train(request: Request) -> None:
    """Train the method and its baseline, or continue them, and print their scores."""
    done = finish(request, time.monotonic() + (request.budget or math.inf))
    if request.as_json:
        shown = [record_as_json(own) for own in done.results]
        content = {
            "run": str(request.folder),
            "finished": done.is_finished,
            "results": next(iter(shown), None),
            "baseline": next(iter(shown[1:]), None),
        }
        print(json.dumps(content))
        return
    if not done.is_finished:
        print(
            f"Stopped with a checkpoint in {request.folder}; run the same command again to "
            "continue."
        )
        return
    print_trained(request.folder, done.results)


def finish(request: Request, deadline: float, *, quietly: bool = False) -> Outcome:
    """Train what is left before the deadline; ``quietly`` omits notes about the tables."""
    config = request.overrides.apply(read_config(request.config))
    training = open_training(config, request.folder, request.device)
    if training.is_finished and not (quietly or config.method.certify):
        say(f"{request.folder} is finished: nothing is trained again")
    tables = training.job.tables
    for note in () if quietly else tables.notes:
        say(f"note: {note}")
    for warning in () if quietly else tables.warnings:
        say(f"warning: {warning}")
    try:
        _train_with_bars(training, deadline - time.monotonic())
    except OSError as error:
        kept = "the last checkpoint is kept; run the same command again to continue"
        reason, where = error.strerror or str(error), error.filename or request.folder
        if error.errno in DISK_FULL:
            reason, where = f"{reason}; make room there", request.folder
        raise OSError(error.errno, f"{reason}; {kept}", str(where)) from error
    return Outcome(training.results, training.is_finished)


def _train_with_bars(training: TableTraining, seconds: float) -> None:
    tables, runs = training.job.tables, training.runs
    groups, small = tables.group_names, tables.encoding.small_group_names
    with (
        display("train", sum(run.rounds for run in runs)) as bars,
        closing(training_rounds(training, seconds)) as steps,
    ):
        shown: TableRun | None = None
        before = 0
        for run, tick in steps:
            if run is not shown:
                before = sum(own.rounds for own in runs[: runs.index(run)])
                bars.start_run(run.method.name, run.rounds)
                shown = run
            if tick.warning:
                say(f"warning: {tick.warning}")
            if tick.record:
                _show_risks(bars, run, tick.record, groups, small)
            bars.show_round(tick.round)
            bars.show_work(before + tick.round)
        if training.is_finished:
            bars.show_work(sum(run.rounds for run in runs))


def _show_risks(
    bars: Display,
    run: TableRun,
    record: RoundRecord,
    groups: Sequence[str],
    small: Sequence[str],
) -> None:
    """Show the groups with the highest training risks beside the bar, except small groups."""
    risks = zip(groups, record.risks, strict=True)
    highest = highest_risks((name, risk) for name, risk in risks if name not in small)
    text = ", ".join(f"{name} {risk:.3g}" for name, risk in highest)
    if record.certificate is not None:
        text += f"; gap {upper_text(record.certificate.gap, 1)}"
    if record.chosen_round is not None:
        text += f"; best round {record.chosen_round:,}"
    bars.rename_run(escape(f"{run.method.name}: {text}"))


def train_seeds(request: Request, number: int) -> None:
    """Train with one seed after another, or continue, and print the spread."""
    config = read_config(request.config)
    if not (config.held_out or config.test):
        raise InputError(
            f"{request.config} has no test rows to compare seeds on; set held_out or test files"
        )
    if not request.folder.exists():
        # Find mistakes in the tables before anything is written.
        load_federated_tables(config)
    seeds = range(config.seed, config.seed + number)
    claim_folder(
        request.folder, {"version": __version__, "configuration": {"first_seed": config.seed}}
    )
    deadline = time.monotonic() + (request.budget or math.inf)
    runs: list[list[Results]] = []
    for seed in seeds:
        overrides = replace(request.overrides, seed=seed)
        folder = seed_folder(request.folder, seed)
        done = finish(
            replace(request, folder=folder, overrides=overrides), deadline, quietly=seed > seeds[0]
        )
        if not done.is_finished:
            _say_unfinished(request, len(runs), number)
            return
        runs.append(done.results)
    spread = spread_over_seeds(runs)
    folders = [str(seed_folder(request.folder, seed)) for seed in seeds]
    content = {"format": 1, "runs": folders} | spread_as_json(spread)
    _write(request.folder, spread, content)
    if request.as_json:
        print(json.dumps({"run": str(request.folder), "finished": True} | content))
        return
    print_spread(request.folder, spread, folders)


def seed_folder(folder: Path, seed: int) -> Path:
    """Return the run folder of a seed."""
    return folder / f"seed-{seed}"


def _say_unfinished(request: Request, done: int, number: int) -> None:
    if request.as_json:
        content = {"run": str(request.folder), "finished": False, "seeds_done": done}
        print(json.dumps(content))
        return
    print(
        f"Stopped with {done} of {number} seeds done in {request.folder}; run the same command "
        "again to continue."
    )


def _write(folder: Path, spread: SeedSpread, content: dict[str, object]) -> None:
    write_json(folder / SPREAD_FILE, content)
    table = markdown_table(*spread_cells(spread))
    parts = [_title(spread), table, *map(markdown_text, spread_notes(spread))]
    write_text(folder / TABLE_FILE, "\n\n".join(parts) + "\n")


def print_spread(folder: Path, spread: SeedSpread, folders: Sequence[str]) -> None:
    """Print how far the results spread over the seeds, and where the files are."""
    console = wide_console()
    print_table(console, _title(spread), *spread_cells(spread))
    for line in (
        *spread_notes(spread),
        f"Spread: {folder / SPREAD_FILE}, {folder / TABLE_FILE}",
        f"Next: fedminmax evaluate {folders[0]}",
    ):
        console.print(line)


def _title(spread: SeedSpread) -> str:
    first, *_, last = (*spread.seeds, spread.seeds[-1])
    return f"Test risk by group over {counted(len(spread.seeds), 'seed')} ({first} to {last})"
