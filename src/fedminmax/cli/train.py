"""`fedminmax train`: from a configuration to a run folder, resumable at any moment.

At the end it prints the test risk by group of the method and of the baseline. With `--seeds N` it
runs the same training on N splits and prints how far the results spread. Each seed has its own run
folder, the same as `fedminmax train` with that seed makes. Another call continues with what is
left, and one with more seeds adds them.
"""

import argparse
import errno
import json
import math
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fedminmax.cli.options import (
    Commands,
    add_command,
    add_options,
    overrides_of,
    positive_int,
)
from fedminmax.core.errors import InputError

if TYPE_CHECKING:
    from fedminmax.cli.terminal import Display
    from fedminmax.config.read import TableConfig
    from fedminmax.findings.records import Results
    from fedminmax.runs.plan import TableRun, TableTraining
    from fedminmax.training.round_record import RoundRecord

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "train",
        train,
        short="train on your own tables, as fedminmax.toml says",
        text="Train the model of a configuration, and a baseline to compare it with. Interrupt it "
        "at any time; run the same command again, and it ends with the same numbers.",
        example="train fedminmax.toml --out runs/first",
    )
    add = parser.add_argument
    add("config", type=Path, metavar="CONFIG", help="a fedminmax.toml; 'fedminmax init' writes one")
    add(
        "--out",
        type=Path,
        metavar="RUN",
        help="the run folder (runs/NAME of the configuration; with --seeds runs/NAME-seeds)",
    )
    add_options(parser, "--set", "--rounds", "--certify", "--budget")
    add(
        "--seeds",
        type=positive_int,
        metavar="N",
        help="train N times, from the configuration's seed upwards: other splits and starts, each "
        "in its own folder; reports how far the results spread",
    )
    add_options(parser, "--device", "--json")
    add("--tensorboard", action="store_true", help="also log rounds for TensorBoard, in the run")
    add("--mlflow-uri", metavar="URI", help="also log rounds to MLflow: sqlite:///mlflow.db, ...")


def train(options: argparse.Namespace) -> None:
    """Train the method and its baseline, or continue them, and print their scores."""
    from fedminmax.cli.trained import print_trained
    from fedminmax.config.read import read_config
    from fedminmax.findings.records import record_as_json

    if options.seeds is not None:
        _train_seeds(options)
        return
    folder = options.out or Path("runs", options.config.stem)
    config = overrides_of(options).apply(read_config(options.config, options.settings))
    training = finish_training(config, folder, options.device, _deadline(options))
    if options.json:
        results, baseline, *_ = (*map(record_as_json, training.results), None, None)
        content = {
            "run": str(folder),
            "finished": training.is_finished,
            "results": results,
            "baseline": baseline,
        }
        print(json.dumps(content))
    elif not training.is_finished:
        print(
            f"Not finished: stopped with a checkpoint in {folder}; run the same command again to "
            "continue."
        )
    else:
        print_trained(folder, training.results)


def _deadline(options: argparse.Namespace) -> float:
    return time.monotonic() + (options.budget or math.inf)


def finish_training(
    config: "TableConfig", folder: Path, device: str, deadline: float, *, quietly: bool = False
) -> "TableTraining":
    """Train what is left before the deadline; ``quietly`` omits notes about the tables."""
    from fedminmax.cli.main import say
    from fedminmax.cli.terminal import display
    from fedminmax.runs.train import open_training

    with display("read the tables and choose the smoothing") as bars:
        training = open_training(config, folder, device)
        if not quietly:
            if training.is_finished and not config.method.certify:
                say(f"{folder} is finished: nothing is trained again")
            for note in training.tables.notes:
                say(f"note: {note}")
            for warning in training.tables.warnings:
                say(f"warning: {warning}")
        try:
            _show_rounds(bars, training, deadline - time.monotonic())
        except OSError as error:
            kept = "the last checkpoint is kept; run the same command again to continue"
            reason, where = error.strerror or str(error), error.filename or folder
            if error.errno in DISK_FULL:
                reason, where = f"{reason}; make room there", folder
            raise OSError(error.errno, f"{reason}; {kept}", str(where)) from error
    return training


def _show_rounds(bars: "Display", training: "TableTraining", seconds: float) -> None:
    from fedminmax.cli.main import say
    from fedminmax.runs.train import training_rounds

    tables, runs = training.tables, training.runs
    groups, small = tables.group_names, tables.encoding.small_group_names
    bars.plan(len(runs))
    with closing(training_rounds(training, seconds)) as steps:
        for run, tick in steps:
            if tick.warning:
                say(f"warning: {tick.warning}")
            if tick.record:
                bars.describe(_state(run, tick.record, groups, small))
            bars.show_work(runs.index(run) + _share(run, tick.round, tick.record))


def _share(run: "TableRun", rounds: int, record: "RoundRecord | None") -> float:
    """Return how much of a run is done: of its rounds, or of the way to its optimality gap."""
    share = rounds / run.rounds
    if record is None or record.certificate is None or not run.optimality_gap:
        return share
    gap = min(1.0, max(record.certificate.gap, run.optimality_gap))
    return max(share, math.log(gap) / math.log(run.optimality_gap))


def _state(
    run: "TableRun", record: "RoundRecord", groups: Sequence[str], small: Sequence[str]
) -> str:
    """Say how far a run is: its round, and the highest training risks, except of small groups."""
    from fedminmax.cli.terminal import highest_risks
    from fedminmax.core.text import upper_text

    risks = zip(groups, record.risks, strict=True)
    text = highest_risks((name, risk) for name, risk in risks if name not in small)
    if record.certificate is not None:
        text += f"; gap {upper_text(record.certificate.gap, 1)}"
    if record.chosen_round is not None:
        text += f"; best round {record.chosen_round:,}"
    return f"{run.method.name}, round {record.round:,}: {text}"


def _train_seeds(options: argparse.Namespace) -> None:
    """Train with one seed after another, or continue, and print the spread."""
    from fedminmax import __version__
    from fedminmax.cli.trained import print_spread, write_spread
    from fedminmax.config.read import read_config
    from fedminmax.data.tables.load import load_federated_tables
    from fedminmax.findings.seed_spread import spread_over_seeds, spread_table
    from fedminmax.runs.folder import claim_folder

    folder = options.out or Path("runs", f"{options.config.stem}-seeds")
    config = read_config(options.config, options.settings)
    overrides = overrides_of(options)
    if not (config.held_out or config.test):
        raise InputError(
            f"{options.config} has no test records to compare seeds on; set held_out or test files"
        )
    if not folder.exists():
        # Find mistakes in the tables before anything is written.
        load_federated_tables(config)
    claim_folder(folder, {"version": __version__, "configuration": {"first_seed": config.seed}})
    deadline = _deadline(options)
    runs: list[list[Results]] = []
    for number in range(options.seeds):
        seed = config.seed + number
        seeded = replace(overrides, seed=seed).apply(config)
        training = finish_training(
            seeded, folder / f"seed-{seed}", options.device, deadline, quietly=number > 0
        )
        if not training.is_finished:
            _say_unfinished(options, folder, number)
            return
        runs.append(training.results)
    spread = spread_over_seeds(runs)
    folders = [str(folder / f"seed-{seed}") for seed in spread.seeds]
    content = {"format": 1, "runs": folders} | asdict(spread)
    table = spread_table(spread, runs[0][0])
    write_spread(folder, spread, table, content)
    if options.json:
        print(json.dumps({"run": str(folder), "finished": True} | content))
    else:
        print_spread(folder, spread, table, folders[0])


def _say_unfinished(options: argparse.Namespace, folder: Path, done: int) -> None:
    if options.json:
        print(json.dumps({"run": str(folder), "finished": False, "seeds_done": done}))
        return
    print(
        f"Stopped with {done} of {options.seeds} seeds done in {folder}; run the same command "
        "again to continue."
    )
