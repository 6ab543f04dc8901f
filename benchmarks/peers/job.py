"""What every peer shares: the options, a site's gradient, the groups' weights and the result.

How rows, models and replies travel is each peer's own business and lives in its own script.
"""

import argparse
import contextlib
import json
import os
import re
import threading
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
from torch import Tensor, nn

from benchmarks.timing import peak_bytes
from benchmarks.workload import Workload, make_image_workload, make_workload
from fedminmax.core.losses import brier_loss
from fedminmax.core.solvers.simplex import ascend_on_simplex

Rows = tuple[Tensor, Tensor, Tensor]
"""Features, targets and groups."""

LEARNING_RATE = 0.1
ADVERSARY_RATE = 0.1
MAKERS = {"synthetic": make_workload, "fashion-mnist": make_image_workload}
# Activations of the CNN fill the memory long before those of the MLP do.
ROWS_PER_CHUNK = {"synthetic": 2000, "fashion-mnist": 250}
SECONDS_BETWEEN_SAMPLES = 0.25
MEMORY_MEASURE = "RSS summed over the process tree, libraries and shared memory counted once"
_RESIDENT = re.compile(r"^Rss(Anon|File|Shmem):\s+(\d+) kB", re.MULTILINE)


@dataclass(frozen=True)
class Job:
    """The rounds to run; hashable, so that a process keeps the rows of the jobs it has seen."""

    experiment: str
    rows: int
    sites: int
    rounds: int = 0

    @cache  # noqa: B019  # jobs are few and live as long as their process
    def workload(self) -> Workload:
        """Return the rows and the initial model, made once per process."""
        return MAKERS[self.experiment](self.rows, self.sites)

    def rows_of(self, site: int) -> Rows:
        """Return one site's rows, without a copy."""
        work = self.workload()
        part = work.rows_of(site)
        return work.x[part], work.y[part], work.group[part]

    @property
    def rows_per_chunk(self) -> int:
        """Rows of one forward and backward pass."""
        return ROWS_PER_CHUNK[self.experiment]

    @property
    def cores_per_site(self) -> int:
        """Cores that one site may use when as many sites as possible work at once."""
        return max(1, cores() // self.sites)


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def read_options(program: str, description: str | None) -> tuple[Job, Path]:
    """Read the command line: the job, and the file that takes its result."""
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("--experiment", choices=sorted(MAKERS), required=True)
    parser.add_argument("--rows", type=int, required=True, help="rows of all sites")
    parser.add_argument("--sites", type=int, required=True, help="number of sites")
    parser.add_argument("--rounds", type=int, required=True, help="rounds; the first is warm-up")
    parser.add_argument("--json", type=Path, required=True, help="file for the result")
    options = parser.parse_args()
    return Job(options.experiment, options.rows, options.sites, options.rounds), options.json


@dataclass(frozen=True, eq=False)
class GroupSums:
    """Loss sums and row counts per group, in float64."""

    losses: Tensor
    counts: Tensor

    @property
    def risks(self) -> Tensor:
        """Mean loss of each group, 0 for a group without rows."""
        return self.losses / self.counts.clamp(min=1)


def gradient_pass(model: nn.Module, job: Job, rows: Rows, importance: Tensor) -> GroupSums:
    """Leave the gradient of (1/n) sum_i w_{a_i} loss_i in ``model``; return the groups' sums."""
    x, y, group = rows
    sums = torch.zeros(len(importance), dtype=torch.float64)
    row_weights = importance.to(x.dtype)[group] / len(y)
    model.zero_grad()
    for start in range(0, len(y), job.rows_per_chunk):
        chunk = slice(start, start + job.rows_per_chunk)
        losses = brier_loss(model(x[chunk]), y[chunk])
        torch.autograd.backward(torch.dot(row_weights[chunk], losses))
        sums.index_add_(0, group[chunk], losses.detach().to(torch.float64))
    counts = torch.bincount(group, minlength=len(importance))
    return GroupSums(sums, counts.to(torch.float64))


class GroupWeights:
    """The server's mu: it starts at the group shares rho and ascends along the risks."""

    def __init__(self, job: Job) -> None:
        self.rows = torch.bincount(job.workload().group).to(torch.float64)
        self.shares = self.rows / self.rows.sum()
        self.weights = self.shares

    @property
    def importance(self) -> Tensor:
        """The weight of a row of each group, w = mu / rho."""
        return self.weights / self.shares

    def ascend(self, sums: GroupSums) -> None:
        """Take one step, after checking that no site's reply was lost."""
        if not torch.equal(sums.counts, self.rows):
            raise RuntimeError(
                f"rows came back as {sums.counts.tolist()}, not {self.rows.tolist()}"
            )
        self.weights = ascend_on_simplex(
            self.weights, sums.risks, sums.counts > 0, rate=ADVERSARY_RATE
        )


def _tree(root: int) -> list[int]:
    """Return the ids of a process and all its descendants."""
    children = defaultdict(list)
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it may end while we look
            # The name is in brackets and may contain spaces; state and parent follow it.
            parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
            children[int(parent)].append(int(process.name))
    found = [root]
    for process_id in found:  # grows on the way
        found += children[process_id]
    return found


def _tree_bytes(root: int) -> int:
    """Return the private pages of a process and its descendants, plus their shared pages once.

    The sum of PSS would say nearly the same, but the kernel needs milliseconds per process for
    it, which the timed rounds would pay. Libraries and Ray's object store are mapped by all, so
    the process that sees most of them stands for all.
    """
    own, libraries, shared = 0, 0, 0
    for process_id in _tree(root):
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{process_id}/status").read_text()
            sizes = {kind: int(kilobytes) * 1024 for kind, kilobytes in _RESIDENT.findall(status)}
            own += sizes.get("Anon", 0)
            libraries = max(libraries, sizes.get("File", 0))
            shared = max(shared, sizes.get("Shmem", 0))
    return own + libraries + shared


class TreeMemory:
    """Watches the memory of this process and all that it starts while the ``with`` block runs."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._stop = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._stop.wait(SECONDS_BETWEEN_SAMPLES):
            self.peak_bytes = max(self.peak_bytes, _tree_bytes(os.getpid()))

    def __enter__(self) -> Self:
        self._watcher.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._watcher.join()
        # The kernel also counts peaks between two samples, but only for this process.
        self.peak_bytes = max(self.peak_bytes, peak_bytes())


@dataclass
class Stopwatch:
    """Seconds of each round, from the end of one to the end of the next."""

    seconds: list[float] = field(default_factory=list)
    _last: float = field(default_factory=time.perf_counter)

    def restart(self) -> None:
        """Start the first round now."""
        self._last = time.perf_counter()

    def round_done(self) -> None:
        """Record the end of a round, which is the start of the next one."""
        now = time.perf_counter()
        self.seconds.append(now - self._last)
        self._last = now


def write_result(
    file: Path, name: str, job: Job, watch: Stopwatch, memory: TreeMemory, model: nn.Module
) -> None:
    """Write timings, memory and, as evidence of the work, the final group risks on all rows."""
    work = job.workload()
    groups = GroupWeights(job)
    sums = gradient_pass(model, job, (work.x, work.y, work.group), groups.importance)
    result = {
        "name": name,
        **asdict(job),
        "seconds": watch.seconds,
        "peak_megabytes": memory.peak_bytes / 1e6,
        "memory_measure": MEMORY_MEASURE,
        "risks": sums.risks.tolist(),
    }
    file.write_text(json.dumps(result, indent=2) + "\n")
