"""Run contestants against each other and put their times, ratios and memory into tables."""

import os
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.contest import Entry, build
from benchmarks.timing import Times, median_ratio, peak_of, time_in_turns

ALLOWED = 1.10


@dataclass(frozen=True)
class Line:
    """One line of a table; ``ratio`` is the median ratio to the best of the references."""

    name: str
    seconds: float
    ratio: float
    peak_megabytes: float | None


@dataclass(frozen=True)
class Verdict:
    """One requirement: measured against allowed."""

    what: str
    ratio: float
    against: str

    def __str__(self) -> str:
        kept = "kept" if self.ratio <= ALLOWED else "MISSED"
        return f"{self.what}: {self.ratio:.2f}x of {self.against} (allowed {ALLOWED:.2f}): {kept}"


def tabulate(times: Times, best: str, peaks: Mapping[str, float]) -> list[Line]:
    """Compare every contestant with the best reference, repeat by repeat."""
    return [
        Line(
            name,
            statistics.median(seconds),
            median_ratio(seconds, times[best]),
            peaks.get(name),
        )
        for name, seconds in times.items()
    ]


def show(title: str, lines: list[Line]) -> None:
    """Print a table."""
    print(f"\n{title}\n{'':34}{'seconds':>9}{'ratio':>8}{'peak MB':>9}")
    for line in lines:
        peak = "-" if line.peak_megabytes is None else f"{line.peak_megabytes:.0f}"
        print(f"{line.name:34}{line.seconds:9.4f}{line.ratio:8.3f}{peak:>9}", flush=True)


def race(entries: Mapping[str, Entry], repeats: int, threads: int) -> Times:
    """Build the contestants, time them in turns and close them."""
    contestants = {name: build(entry) for name, entry in entries.items()}
    try:
        return time_in_turns(contestants, repeats, threads)
    finally:
        for contestant in contestants.values():
            contestant.close()


def peaks_of(entries: Mapping[str, Entry]) -> dict[str, float]:
    """Measure each contestant's peak memory in a fresh process."""
    return {name: peak_of(build, entry) / 2**20 for name, entry in entries.items()}


def machine() -> dict[str, str | int]:
    """Describe this machine."""
    information = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(":", 1)[1].strip() for line in information if line.startswith("model n")]
    return {
        "cpu": models[0] if models else "unknown",
        "cores": len(os.sched_getaffinity(0)),
        "torch": torch.__version__,
        "torch_threads": torch.get_num_threads(),
    }
