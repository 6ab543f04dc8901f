"""One line of the table of rounds to a target, and how it is measured."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fedminmax.core.messages import RoundKey
from fedminmax.methods.method import LocalMethod
from fedminmax.network.wire.messages import order_to_bytes, sums_to_bytes
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import Round, train

SETTINGS = ("ESG", "PSG", "SSG")


@dataclass(frozen=True)
class Target:
    """A target: reached in the first round whose ``reading`` is at most ``goal``."""

    text: str
    goal: float
    max_rounds: int


@dataclass(frozen=True)
class Reached:
    """One line: ``rounds`` is None if the target was not reached within its rounds."""

    task: str
    setting: str
    seed: int
    target: Target
    rounds: int | None
    reading: float
    kilobytes_up: float
    kilobytes_down: float
    cpu_seconds_per_round: float

    def __str__(self) -> str:
        within = f"{self.rounds}" if self.rounds else f"not in {self.target.max_rounds}"
        return (
            f"| {self.task} | {self.setting} | {self.seed} | {self.target.text} | {within} "
            f"| {self.target.max_rounds} | {self.reading:.3g} | {self.kilobytes_up:,.1f} "
            f"| {self.kilobytes_down:,.1f} | {self.cpu_seconds_per_round:.3f} |"
        )


HEADER = (
    "| task | setting | seed | target | rounds | at most | last reading | kB up | kB down "
    "| CPU s / round |\n|---|---|---|---|---|---|---|---|---|---|"
)


def reach(
    task: tuple[str, str, int],
    federation: Simulation,
    method: LocalMethod[Any],
    targets: tuple[Target, ...],
    reading: Callable[[Round[Any]], float],
) -> list[Reached]:
    """Train until the last target or the maximum of rounds is reached; a line for each target.

    ``reading`` is computed after each round, for the model that it ends with. Kilobytes are one
    site's, per round; seconds are processor time over all cores, which other work on the machine
    hardly affects.
    """
    first: dict[str, int] = {}
    start, done, value = time.process_time(), 0, float("inf")
    for now in train(
        federation, method, rounds=max(target.max_rounds for target in targets), seed=task[2]
    ):
        done, value = now.number, reading(now)
        for target in targets:
            if value <= target.goal and done <= target.max_rounds:
                first.setdefault(target.text, done)
        if len(first) == len(targets):
            break
    seconds = (time.process_time() - start) / done
    up, down = _kilobytes(federation, method)
    return [
        Reached(*task, target, first.get(target.text), value, up, down, seconds)
        for target in targets
    ]


def _kilobytes(federation: Simulation, method: LocalMethod[Any]) -> tuple[float, float]:
    """Return the size of a first round's reply and order."""
    census, start = federation.census, federation.initial_parameters
    order = method.order(method.init(start, census), RoundKey(0, 1))
    total = federation.ask(method, order, census.occupied[:1]).total
    reply = sums_to_bytes(total, 0.0)
    return len(reply) / 1000, len(order_to_bytes(order)) / 1000
