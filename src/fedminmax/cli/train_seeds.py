"""`fedminmax train --seeds N`: the same training on N splits, and how far its results spread.

Each seed has a run folder of its own, which is that of `fedminmax train` with this seed. Another
call goes on with what is left, and one with more seeds adds them.
"""

import json
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedminmax import __version__
from fedminmax.cli.tables import print_table, wide_console
from fedminmax.cli.train import Request, finish
from fedminmax.core.counted import counted
from fedminmax.core.errors import InputError
from fedminmax.core.files import write_json, write_text
from fedminmax.data.tables.config import read_config
from fedminmax.data.tables.load import load_federated_tables
from fedminmax.report.markdown import markdown_table, markdown_text
from fedminmax.report.run_folder_records import Results
from fedminmax.report.seed_spread import (
    SeedSpread,
    spread_as_json,
    spread_cells,
    spread_notes,
    spread_over_seeds,
)
from fedminmax.studies.run_folder import claim_folder

SPREAD_FILE, TABLE_FILE = "seeds.json", "seeds.md"


def train_seeds(request: Request, number: int) -> None:
    """Train with one seed after another, or go on with them, and print the spread."""
    config = read_config(request.config)
    if not (config.held_out or config.test):
        raise InputError(
            f"{request.config} has no test rows to compare seeds on; set held_out or test files"
        )
    if not request.folder.exists():
        # A mistake in the tables shows before anything is written.
        load_federated_tables(config)
    seeds = range(config.seed, config.seed + number)
    claim_folder(
        request.folder, {"version": __version__, "configuration": {"first_seed": config.seed}}
    )
    deadline = time.monotonic() + (request.budget or math.inf)
    runs: list[list[Results]] = []
    for seed in seeds:
        own = replace(request, folder=seed_folder(request.folder, seed), seed=seed)
        done = finish(own, deadline, quietly=seed > seeds[0])
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
    _print(request.folder, spread, folders)


def seed_folder(folder: Path, seed: int) -> Path:
    """Return the run folder of a seed."""
    return folder / f"seed-{seed}"


def _say_unfinished(request: Request, done: int, number: int) -> None:
    if request.as_json:
        content = {"run": str(request.folder), "finished": False, "seeds_done": done}
        print(json.dumps(content))
        return
    print(
        f"Stopped with {done} of {number} seeds done in {request.folder}; the same command goes on."
    )


def _write(folder: Path, spread: SeedSpread, content: dict[str, object]) -> None:
    write_json(folder / SPREAD_FILE, content)
    table = markdown_table(*spread_cells(spread))
    parts = [_title(spread), table, *map(markdown_text, spread_notes(spread))]
    write_text(folder / TABLE_FILE, "\n\n".join(parts) + "\n")


def _print(folder: Path, spread: SeedSpread, folders: Sequence[str]) -> None:
    console = wide_console()
    print_table(console, _title(spread), *spread_cells(spread))
    for words in (
        *spread_notes(spread),
        f"Spread: {folder / SPREAD_FILE}, {folder / TABLE_FILE}",
        f"Next: fedminmax evaluate {folders[0]}",
    ):
        console.print(words, markup=False, highlight=False)


def _title(spread: SeedSpread) -> str:
    first, *_, last = (*spread.seeds, spread.seeds[-1])
    return f"Test risk by group over {counted(len(spread.seeds), 'seed')} ({first} to {last})"
