"""Timing in turns: every contestant once per repeat, so that noise affects all of them equally.

Peak memory is that of one contestant in its own process. We read the high-water mark of the
process's own pages (VmHWM). ``ru_maxrss`` is no use in a child: Linux carries the parent's size at
the moment of the fork over into it.
"""

import multiprocessing
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Generic, TypeVar

import torch

ArgumentT = TypeVar("ArgumentT")


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


def peak_bytes() -> int:
    """Return this process's largest resident size so far."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no VmHWM; this needs Linux")


class _Measure(Generic[ArgumentT]):
    """Runs in the child: build, run twice, report the growth of the peak since the imports."""

    def __init__(self, build: Callable[[ArgumentT], Contestant], argument: ArgumentT) -> None:
        self.build = build
        self.argument = argument

    def __call__(self, answer: Connection) -> None:
        before = peak_bytes()
        contestant = self.build(self.argument)
        contestant.run()
        contestant.run()
        answer.send(peak_bytes() - before + contestant.close())


def peak_of(build: Callable[[ArgumentT], Contestant], argument: ArgumentT) -> int:
    """Return the bytes that this contestant uses beyond the imports, data included."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_Measure(build, argument), args=(sender,))
    child.start()
    sender.close()
    try:
        return int(receiver.recv())
    except EOFError as error:
        raise RuntimeError("the measured contestant died; see its traceback above") from error
    finally:
        child.join()
