"""How the time of a FedMinMax round grows with the number of sites, compared with alternatives.

The plain PyTorch limit, fedminmax, a naive loop over sites and, with --peers PYTHON, Flower's
simulation and pfl-research in their own environment. Each runs in its own process from
the same initial model, and all must end at the same group risks.

    python -m benchmarks.sites_speed [--peers .venv-peers/bin/python] --json sites_speed.json
"""

import argparse
import json
import math
import multiprocessing
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.cnn_passes import plain_cnn_pass
from benchmarks.contest import IMAGE_LAYOUTS
from benchmarks.plain_pytorch import naive_rounds, plain_pass
from benchmarks.race import machine
from benchmarks.timing import peak_bytes
from benchmarks.workload import SEED, Workload, make_federation, make_image_workload, make_workload
from fedminmax.core.iterates import Iterate
from fedminmax.core.losses import brier_loss
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.training.train import train

SITES = (10, 40, 1000, 10_000)
PEERS = {
    "Flower": "benchmarks.peers.flower_rounds",
    "pfl": "benchmarks.peers.pfl_rounds",
    "pfl, one thread": "benchmarks.peers.pfl_rounds",
}
MAKE = {"synthetic": make_workload, "fashion-mnist": make_image_workload}
ROWS = {"synthetic": 10_000, "fashion-mnist": 60_000}


@dataclass(frozen=True)
class Job:
    """One measurement: who does how many rounds of which work."""

    name: str
    experiment: str
    rows: int
    sites: int
    rounds: int


@dataclass(frozen=True)
class Outcome:
    """Seconds per round without the first, peak memory, and the risks at the end if it trains."""

    name: str
    experiment: str
    rows: int
    sites: int
    seconds: float
    peak_megabytes: float
    risks: list[float]


def limit_rounds(work: Workload) -> Iterator[Tensor]:
    """One plain pass per round: no sites, no update."""
    if work.x.dim() == 4:
        layout = next(iter(IMAGE_LAYOUTS.values()))
        contestant = plain_cnn_pass(work, layout)
    else:
        contestant = plain_pass(work, 4000)
    while True:
        result = contestant.run()
        assert isinstance(result, Tensor)
        yield result


def library_rounds(work: Workload) -> Iterator[Tensor]:
    """The library's rounds."""
    for done in train(make_federation(work), FedMinMax(), rounds=10**9, seed=SEED):
        yield done.parameters(Iterate.LAST)


WAYS: dict[str, Callable[[Workload], Iterator[Tensor]]] = {
    "limit": limit_rounds,
    "fedminmax": library_rounds,
    "naive loop": naive_rounds,
}


def risks_of(work: Workload, parameters: Tensor) -> list[float]:
    """Group risks of these parameters over all rows."""
    torch.nn.utils.vector_to_parameters(parameters, work.model.parameters())
    with torch.no_grad():
        losses = torch.cat(
            [
                brier_loss(work.model(work.x[start : start + 250]), work.y[start : start + 250])
                for start in range(0, work.rows, 250)
            ]
        ).double()
    sums = torch.bincount(work.group, weights=losses)
    risks: list[float] = (sums / torch.bincount(work.group)).tolist()
    return risks


def _measure(job: Job, answer: Connection) -> None:
    """In a child process: run the rounds, send times, memory and risks."""
    before = peak_bytes()
    work = MAKE[job.experiment](job.rows, job.sites)
    rounds = WAYS[job.name](work)
    seconds, parameters = [], torch.empty(0)
    for _ in range(job.rounds):
        start = time.perf_counter()
        parameters = next(rounds)
        seconds.append(time.perf_counter() - start)
    peak = peak_bytes() - before
    risks = [] if job.name == "limit" else risks_of(work, parameters)
    answer.send((statistics.median(seconds[1:] or seconds), peak / 2**20, risks))


def measure(job: Job) -> Outcome:
    """Measure one of our own contestants."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_measure, args=(job, sender))
    child.start()
    sender.close()
    seconds, peak, risks = receiver.recv()
    child.join()
    return Outcome(job.name, job.experiment, job.rows, job.sites, seconds, peak, risks)


def measure_peer(job: Job, python: Path, patience: float) -> Outcome | None:
    """Measure a peer in its own environment; None if it takes longer than our patience."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "outcome.json")
        command = [
            *(str(python), "-m", PEERS[job.name], "--experiment", job.experiment),
            *("--rows", str(job.rows), "--sites", str(job.sites)),
            *("--rounds", str(job.rounds), "--json", str(path)),
        ]
        try:
            # Threads inside small operations can cost more than they save: pfl runs both ways.
            threads = {"OMP_NUM_THREADS": "1"} if "one thread" in job.name else {}
            subprocess.run(  # noqa: S603
                command, check=True, capture_output=True, timeout=patience, env=os.environ | threads
            )
        except subprocess.TimeoutExpired:
            return None
        content = json.loads(path.read_text())
    return Outcome(
        job.name.replace(job.name.split(",")[0], content["name"]),
        job.experiment,
        job.rows,
        job.sites,
        statistics.median(content["seconds"][1:] or content["seconds"]),
        content["peak_megabytes"],
        content["risks"],
    )


def check_same_risks(outcomes: list[Outcome]) -> None:
    """Exit unless all trained contestants ended at the same risks."""
    trained = [outcome for outcome in outcomes if outcome.risks]
    for outcome in trained[1:]:
        pairs = zip(outcome.risks, trained[0].risks, strict=True)
        worst = max(abs(a - b) for a, b in pairs)
        if not worst < 1e-6:
            raise SystemExit(
                f"{outcome.name}, {outcome.experiment}, {outcome.sites} sites: risks differ "
                f"from those of {trained[0].name} by {worst:.2g}; not the same work"
            )


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.sites_speed")
    parser.add_argument("--experiments", nargs="+", choices=tuple(MAKE), default=list(MAKE))
    parser.add_argument("--sites", nargs="+", type=int, default=list(SITES))
    parser.add_argument("--rounds", type=int, default=4, help="the first one is not counted")
    parser.add_argument("--rows", type=int, help="of all sites (10000 and 60000)")
    parser.add_argument("--peers", type=Path, help="python of the peers' environment")
    parser.add_argument("--patience", type=float, default=600.0, help="seconds for one peer's run")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    return parser.parse_args()


def main() -> None:
    """Measure, check and print, one line per way and number of sites."""
    options = parse()
    print(", ".join(f"{name}: {value}" for name, value in machine().items()))
    outcomes: list[Outcome] = []
    for experiment in options.experiments:
        rows = options.rows or ROWS[experiment]
        for sites in options.sites:
            if sites > rows:
                continue
            own = [measure(Job(name, experiment, rows, sites, options.rounds)) for name in WAYS]
            missing = []
            for name in PEERS if options.peers else ():
                job = Job(name, experiment, rows, sites, options.rounds)
                outcome = measure_peer(job, options.peers, options.patience)
                if outcome is None:
                    missing.append(name)
                else:
                    own.append(outcome)
            check_same_risks(own)
            show(own, missing, options.patience)
            outcomes += own
            if options.json:
                content = {"machine": machine(), "outcomes": [asdict(one) for one in outcomes]}
                options.json.write_text(json.dumps(content, indent=2) + "\n")


def show(outcomes: list[Outcome], missing: list[str], patience: float) -> None:
    """Print one number of sites."""
    first = outcomes[0]
    print(f"\n{first.experiment}, {first.rows} rows, {first.sites} sites (same risks: checked)")
    for outcome in outcomes:
        ratio = outcome.seconds / first.seconds if first.seconds else math.nan
        print(
            f"{outcome.name:24}{outcome.seconds:10.3f} s{ratio:9.2f}x"
            f"{outcome.peak_megabytes:9.0f} MB",
            flush=True,
        )
    for name in missing:
        print(f"{name:24}   not done within {patience:.0f} s", flush=True)


if __name__ == "__main__":
    main()
