"""Run the states as real processes with masked sums, beside the simulation of the same records.

    python -m experiments.real_sites.processes --data FOLDER --states 3
    python -m experiments.real_sites.processes --data FOLDER

One file for each state; `fedminmax train` on all of them, then `fedminmax federation local` with a
server and a process for each state, whose sums are masked. A line of ``processes.jsonl`` has how
far apart both models are, what travelled, and what it took. Memory is what the processes have for
themselves and their part of what they share (proportional set size).
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import psutil
from numpy.typing import NDArray

from experiments.table_models.ours import ADDITIVE, configuration
from experiments.table_models.tables import Problem, acs
from fedminmax.exports.saved_model import load_model
from fedminmax.runs.folder import BASELINE_FOLDER
from fedminmax.training.round_record import ROUNDS_FILE

LINES = Path(__file__).with_name("processes.jsonl")
SECONDS_BETWEEN_SAMPLES = 2.0
GB, MB = 2**30, 2**20


def main() -> None:
    """Run both, and write the line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with acs")
    parser.add_argument("--states", type=int, default=19, help="the first ones by name")
    parser.add_argument("--out", type=Path, default=LINES)
    options = parser.parse_args()
    problem = acs(options.data)
    states = sorted(problem.frame["site"].unique())[: options.states]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        config = write_sites(problem, states, folder)
        start = time.perf_counter()
        run_command("train", config, folder / "together")
        about = {"states": len(states), "seconds_simulated": round(time.perf_counter() - start)}
        about |= run_command("federation local --secure-aggregation", config, folder / "apart")
        about |= compared(folder / "together", folder / "apart")
    line = json.dumps(about)
    print(line)
    with options.out.open("a", encoding="utf-8") as out:
        print(line, file=out)


def write_sites(problem: Problem, states: list[str], folder: Path) -> Path:
    """Write a table for each state, and the configuration that names them."""
    for state in states:
        own = problem.frame.filter(pl.col("site") == state).drop("site")
        own.write_csv(folder / f"{state}.csv")
    text = configuration(problem, ADDITIVE, 0)
    for key in ("file", "site_column", "held_out"):
        text = "\n".join(line for line in text.splitlines() if not line.startswith(f"{key} = "))
    # Masks need the groups that every site may have.
    groups = json.dumps(sorted(problem.frame["group"].unique()))
    text = text.replace("[groups]\n", f"[groups]\nvalues = {{ group = {groups} }}\n")
    sites = "\n".join(f'{state} = "{state}.csv"' for state in states)
    path = folder / "fedminmax.toml"
    path.write_text(f"{text}\n[data.sites]\n{sites}\n", encoding="utf-8")
    return path


def run_command(words: str, config: Path, out: Path) -> dict[str, Any]:
    """Run a command of fedminmax; return its seconds and what all its processes took."""
    command = [sys.executable, "-m", "fedminmax.cli.main", *words.split(), str(config)]
    start = time.perf_counter()
    process = psutil.Popen([*command, "--out", str(out)], stdout=subprocess.DEVNULL)
    most, together, seconds = 0.0, 0, dict[int, float]()
    while process.poll() is None:
        time.sleep(SECONDS_BETWEEN_SAMPLES)
        memory = 0
        running = _tree_of(process)
        for own in running:
            try:
                memory += own.memory_full_info().pss
                seconds[own.pid] = sum(own.cpu_times()[:2])
            except psutil.Error:
                continue
        most, together = max(most, memory / GB), max(together, len(running))
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return {
        "seconds": round(time.perf_counter() - start),
        "processor_seconds": round(sum(seconds.values())),
        "processes": together,
        "memory_gb": round(most, 1),
    }


def _tree_of(process: psutil.Popen) -> list[psutil.Process]:
    try:
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def compared(together: Path, apart: Path) -> dict[str, Any]:
    """Return how far apart the parameters are, and what travelled."""
    differences = [
        float((own - other).detach().abs().max())
        for place in (".", BASELINE_FOLDER)
        for own, other in zip(
            load_model(together / place).model.parameters(),
            load_model(apart / place).model.parameters(),
            strict=True,
        )
    ]
    ours, theirs = (_risks(run / ROUNDS_FILE) for run in (together, apart))
    rounds = min(len(ours), len(theirs))
    results = json.loads((apart / "results.json").read_text(encoding="utf-8"))
    cost = results["cost"]
    return {
        "largest_difference_of_parameters": max(differences),
        "largest_difference_of_training_risks": float(
            np.nanmax(np.abs(ours[:rounds] - theirs[:rounds]))
        ),
        "rounds": len(theirs),
        "mb_from_each_site": round(cost["total_up"] / MB, 2),
        "mb_to_each_site": round(cost["total_down"] / MB, 2),
    }


def _risks(path: Path) -> NDArray[np.float64]:
    """Return the training risks by round and group."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return np.array([json.loads(line)["risks"] for line in lines], np.float64)


if __name__ == "__main__":
    main()
