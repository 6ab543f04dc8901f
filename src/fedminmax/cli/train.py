"""`fedminmax train`: from a configuration to a run folder, resumable at any moment."""

import errno
import json
import math
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from rich.markup import escape

from fedminmax.cli.progress import Display, display
from fedminmax.cli.risk_words import highest_risks
from fedminmax.cli.trained_table import print_trained
from fedminmax.data.tables.config import LoggingChoice, TableConfig, adjusted, read_config
from fedminmax.report.round_records import RoundRecord
from fedminmax.report.run_folder_records import Results, record_as_json
from fedminmax.studies.table_runs import TableRun
from fedminmax.studies.train_tables import TableTraining, open_training, training_rounds

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True)
class Request:
    """What one call is to do; without a ``seed``, that of the configuration is used."""

    config: Path
    folder: Path
    rounds: int | None
    budget: float | None
    device: str
    tensorboard: bool
    mlflow: str | None
    as_json: bool
    seed: int | None = None
    gap: float | None = None
    validation: float | None = None
    patience: int | None = None
    certify: bool = False


@dataclass(frozen=True)
class Outcome:
    """The results of the runs that are finished, the method's first; others may be left."""

    results: list[Results]
    is_finished: bool


def train(request: Request) -> None:
    """Train the method and its baseline, or go on with them, and print what they scored."""
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
        print(f"Stopped with a checkpoint in {request.folder}; the same command goes on.")
        return
    print_trained(request.folder, done.results)


def finish(request: Request, deadline: float, *, quietly: bool = False) -> Outcome:
    """Train what is left before the deadline; ``quietly`` says nothing about the tables again."""
    training = open_training(_config(request), request.folder, request.device)
    tables = training.job.tables
    for note in () if quietly else tables.notes:
        print(f"fedminmax: note: {note}", file=sys.stderr)
    for warning in () if quietly else tables.warnings:
        print(f"fedminmax: warning: {warning}", file=sys.stderr)
    try:
        _train_with_bars(training, deadline - time.monotonic())
    except OSError as error:
        kept = "the last checkpoint is kept, and the same command goes on"
        reason, where = error.strerror or str(error), error.filename or request.folder
        if error.errno in NO_ROOM:
            reason, where = f"{reason}; make room there", request.folder
        raise OSError(error.errno, f"{reason}; {kept}", str(where)) from error
    return Outcome(training.results, training.is_finished)


def _config(request: Request) -> TableConfig:
    """Let the command line have the last word."""
    config = read_config(request.config)
    logging = LoggingChoice(
        request.tensorboard or config.logging.tensorboard, request.mlflow or config.logging.mlflow
    )
    return adjusted(
        replace(config, logging=logging),
        rounds=request.rounds,
        seed=request.seed,
        validation=request.validation,
        patience=request.patience,
        gap=request.gap,
        certify=request.certify,
    )


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
            if tick.complaint:
                print(f"fedminmax: warning: {tick.complaint}", file=sys.stderr)
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
    """Name the groups with the highest training risks beside the bar, but for small ones."""
    risks = zip(groups, record.risks, strict=True)
    highest = highest_risks((name, risk) for name, risk in risks if name not in small)
    words = ", ".join(f"{name} {risk:.3g}" for name, risk in highest)
    if record.certificate is not None:
        words += f"; gap {record.certificate.gap:.1g}"
    if record.chosen_round is not None:
        words += f"; best round {record.chosen_round:,}"
    bars.rename_run(escape(f"{run.method.name}: {words}"))
