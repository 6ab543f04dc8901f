"""When do two threads, one site each, beat one worker? It decides OPERATIONS_WORTH_A_THREAD.

Threads share Python's lock: with small models most of a step is Python, and threads only block
each other. We time one FedAvg round (1 epoch, batches of 100) with one worker that may
use all cores within an operation, one worker with a single core, and one worker per core.

    python -m benchmarks.local_training
"""

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch

from benchmarks.timing import Contestant, median_ratio, time_in_turns
from fedminmax.core.examples import Examples
from fedminmax.core.losses import brier_loss
from fedminmax.core.messages import Census, RoundKey
from fedminmax.core.models import linear, mlp
from fedminmax.core.task import Task
from fedminmax.core.workspace import Workspace
from fedminmax.methods.fedavg import FedAvg
from fedminmax.methods.method import SiteData
from fedminmax.training.replies import add_up, ask_in_turn, site_reply

FEATURES = 20
CLASSES = 2
SITES = 40
BATCH_SIZE = 100
ROWS_PER_SITE = (8, 25, 100, 200)
HIDDEN_WIDTHS: tuple[tuple[int, ...], ...] = (
    (),
    (64, 64),
    (128, 128),
    (256, 256),
    (512, 512),
    (512, 512, 512, 512),
)


@dataclass(frozen=True)
class Setting:
    """One model and one size of site."""

    hidden: tuple[int, ...]
    rows: int

    @property
    def name(self) -> str:
        """The model's name in the table."""
        return "x".join(map(str, self.hidden)) or "linear"


def make_task(hidden: tuple[int, ...]) -> Task:
    """Build the model, always from the same random numbers."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = mlp(FEATURES, CLASSES, hidden) if hidden else linear(FEATURES, CLASSES)
    return Task(model, brier_loss)


def make_sites(rows: int) -> list[SiteData]:
    """Build sites with random rows of two groups."""
    generator = torch.Generator().manual_seed(0)
    return [
        SiteData(
            number,
            Examples(
                torch.randn(rows, FEATURES, generator=generator),
                torch.randint(0, CLASSES, (rows,), generator=generator),
                torch.arange(rows) % 2,
            ),
            sites=SITES,
            groups=2,
            rows_per_chunk=rows,
            kept=torch.zeros(0),
        )
        for number in range(SITES)
    ]


def contestants(setting: Setting, cores: int) -> dict[str, Contestant]:
    """One round with one worker (all cores, or one) and with one worker per core."""
    task, sites, method = make_task(setting.hidden), make_sites(setting.rows), FedAvg(epochs=1)
    start = task.initial_parameters
    counts = torch.stack([torch.bincount(h.examples.group, minlength=2) for h in sites])
    order = method.order(method.init(start, Census(counts)), RoundKey(seed=0, round=1))
    workspaces = [Workspace(task) for _ in range(cores)]

    def run(workers: Sequence[Workspace], threads: int) -> None:
        torch.set_num_threads(threads)
        replies = ask_in_turn(partial(site_reply, method, order), sites, workers)
        add_up(reply for reply, _ in replies)

    return {
        "one worker": Contestant(lambda: run(workspaces[:1], cores)),
        "one worker, one core": Contestant(lambda: run(workspaces[:1], 1)),
        "worker per core": Contestant(lambda: run(workspaces, cores)),
    }


def main() -> None:
    """Print, for each model and size of site, whether a worker per core pays."""
    parser = argparse.ArgumentParser(
        description=__doc__, prog="python -m benchmarks.local_training"
    )
    parser.add_argument("--repeats", type=int, default=9)
    repeats: int = parser.parse_args().repeats
    cores = torch.get_num_threads()
    print(f"{SITES} sites, FedAvg, E=1, B={BATCH_SIZE}, {cores} cores; milliseconds per round")
    heading = ("operations", "one", "one core", "per core", "gain")
    print(f"{'model':18}{'rows':>6}" + "".join(f"{title:>12}" for title in heading))
    for hidden in HIDDEN_WIDTHS:
        parameters = make_task(hidden).initial_parameters.numel()
        for rows in ROWS_PER_SITE:
            setting = Setting(hidden, rows)
            times = time_in_turns(contestants(setting, cores), repeats, cores)
            medians = [statistics.median(seconds) * 1e3 for seconds in times.values()]
            alone, _, shared = times.values()
            print(
                f"{setting.name:18}{rows:6}{parameters * min(rows, BATCH_SIZE):12,}"
                + "".join(f"{median:12.1f}" for median in medians)
                + f"{median_ratio(alone, shared):12.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
