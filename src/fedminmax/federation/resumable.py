"""A run that survives its process: checkpoints while it goes, and on from there when called again.

A checkpoint is written every few seconds and when the loop is left for whatever reason, so an
interrupted run goes on after its last finished round, and a killed one at most seconds before.
"""

import json
import math
import time
from collections.abc import Generator
from dataclasses import asdict, dataclass
from pathlib import Path

from fedminmax.core.errors import InputError
from fedminmax.federation.checkpoint import load_checkpoint, save_checkpoint
from fedminmax.federation.federation import Federation
from fedminmax.federation.train import Progress, Round, start_of, train
from fedminmax.methods.method import AnyMethod, StateT

SECONDS_BETWEEN_CHECKPOINTS = 10.0


@dataclass(frozen=True)
class HistoryPoint:
    """One line of a run's history: training risks that entered a round, and the weights after."""

    round: int
    seconds: float
    risks: tuple[float, ...]
    weights: tuple[float, ...]


def train_resumably(
    folder: Path,
    federation: Federation,
    method: AnyMethod[StateT],
    *,
    rounds: int,
    seed: int,
    resume: Progress[StateT] | None,
    participation: float = 1.0,
    seconds: float = math.inf,
) -> Generator[Round[StateT]]:
    """Yield the rounds after ``resume``, with checkpoints in ``folder``.

    A round counts as finished when the caller's loop body has come back from it. No round begins
    after ``seconds``, except for the first one: every call gets somewhere.
    """
    finished = resume
    started = saved_at = time.monotonic()
    saved = resume
    try:
        for done in train(
            federation,
            method,
            rounds=rounds,
            seed=seed,
            participation=participation,
            resume=resume,
        ):
            yield done
            finished = done.progress
            if time.monotonic() - saved_at > SECONDS_BETWEEN_CHECKPOINTS:
                save_checkpoint(folder, finished)
                saved, saved_at = finished, time.monotonic()
            if time.monotonic() - started > seconds:
                break
    finally:
        if finished is not None and finished is not saved:
            save_checkpoint(folder, finished)


def restore(
    folder: Path, federation: Federation, method: AnyMethod[StateT]
) -> tuple[Progress[StateT] | None, str | None]:
    """Return where the run in ``folder`` stands, and a complaint if a checkpoint was damaged."""
    restored = load_checkpoint(folder, start_of(federation, method))
    return (None, None) if restored is None else (restored.progress, restored.complaint)


class History:
    """The run's history file: JSON lines, appended before the checkpoint of the same round.

    Lines after the restored round belong to work that will be done again, and are dropped.
    """

    def __init__(self, path: Path, restored_round: int) -> None:
        self._path = path
        kept = [point for point in read_history(path) if point.round <= restored_round]
        self._before = kept[-1].seconds if kept else 0.0
        self._started = time.monotonic()
        beside = path.with_suffix(".partial")
        beside.write_text("".join(_line(point) for point in kept))
        beside.replace(path)

    @property
    def seconds(self) -> float:
        """Time spent on the run so far, over all calls."""
        return self._before + time.monotonic() - self._started

    def add(self, done: Round[StateT]) -> None:
        """Append a round to the file."""
        point = HistoryPoint(
            done.number,
            round(self.seconds, 3),
            tuple(done.risks.tolist()),
            tuple(done.weights.tolist()),
        )
        with self._path.open("a") as file:
            file.write(_line(point))


def read_history(path: Path) -> list[HistoryPoint]:
    """Read a history file; a last line that was cut off by a crash is not part of it."""
    if not path.exists():
        return []
    lines = path.read_text().splitlines(keepends=True)
    return [_parsed(line, path) for line in lines if line.endswith("\n")]


def _parsed(line: str, path: Path) -> HistoryPoint:
    try:
        entry = json.loads(line)
        risks, weights = tuple(entry["risks"]), tuple(entry["weights"])
        return HistoryPoint(entry["round"], entry["seconds"], risks, weights)
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} is damaged; remove it, and the run goes on from its checkpoint"
        ) from error


def _line(point: HistoryPoint) -> str:
    return json.dumps(asdict(point)) + "\n"
