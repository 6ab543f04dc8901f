"""Timing in turns: every contestant once per repeat, so that noise affects all of them equally."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch


def nothing_held() -> int:
    """Close a contestant that has nothing to close."""
    return 0


@dataclass(frozen=True)
class Contestant:
    """One way to do the work.

    ``close`` ends it and returns the bytes that its helper processes had taken.
    """

    run: Callable[[], object]
    close: Callable[[], int] = nothing_held


Times = Mapping[str, Sequence[float]]


def time_in_turns(contestants: Mapping[str, Contestant], repeats: int, threads: int) -> Times:
    """Seconds of each contestant in each repeat, after one round of warming up."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for repeat in range(repeats + 1):
        for name, contestant in contestants.items():
            torch.set_num_threads(threads)
            start = time.perf_counter()
            contestant.run()
            if repeat:
                times[name].append(time.perf_counter() - start)
    torch.set_num_threads(threads)
    return times


def fastest(times: Times) -> str:
    """Return the name of the contestant with the lowest median."""
    return min(times, key=lambda name: statistics.median(times[name]))


def median_ratio(numerator: Sequence[float], denominator: Sequence[float]) -> float:
    """Return the median over repeats of the ratio within one repeat.

    >>> median_ratio([2.0, 4.0, 9.0], [1.0, 2.0, 3.0])
    2.0
    """
    return statistics.median(a / b for a, b in zip(numerator, denominator, strict=True))
