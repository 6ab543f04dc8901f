"""A run that survives its process: checkpoints while it goes, and on from there when called again.

A checkpoint is written every few seconds and when the loop is left for whatever reason, so an
interrupted run goes on after its last finished round, and a killed one at most seconds before. The
rounds since then are done again, to the same model.
"""

import math
import time
import warnings
from collections.abc import Generator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedminmax.core.json_lines import append_entry, keep_rounds, read_records
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
    folder: str | Path,
    federation: Federation,
    method: AnyMethod[StateT],
    *,
    rounds: int,
    seed: int = 0,
    participation: float = 1.0,
    patience: int | None = None,
    seconds: float = math.inf,
) -> Generator[Round[StateT]]:
    """Run the method with checkpoints in ``folder``: the same call goes on from the last one.

    It yields the rounds that are left, and ends with the numbers of a run that never stopped; no
    round begins after ``seconds``, except for the first one. A run that is over yields nothing: its
    answer is ``load_checkpoint(folder, start_of(federation, method))``. The arguments are those of
    ``train``.
    """
    progress, complaint = restore(folder, federation, method)
    if complaint is not None:
        warnings.warn(complaint, stacklevel=2)
    return train_with_checkpoints(
        folder,
        federation,
        method,
        rounds=rounds,
        seed=seed,
        resume=progress,
        participation=participation,
        patience=patience,
        seconds=seconds,
    )


def train_with_checkpoints(
    folder: str | Path,
    federation: Federation,
    method: AnyMethod[StateT],
    *,
    rounds: int,
    seed: int,
    resume: Progress[StateT] | None,
    participation: float = 1.0,
    patience: int | None = None,
    seconds: float = math.inf,
    saving_share: float = 0.0,
) -> Generator[Round[StateT]]:
    """Yield the rounds after ``resume``, with checkpoints in ``folder``.

    A round counts as finished when the caller's loop body has come back from it. No round begins
    after ``seconds``, except for the first one: every call gets somewhere. Checkpoints come more
    often than every few seconds if they take no more than ``saving_share`` of the time.
    """
    finished = resume
    started = time.monotonic()
    due = started + pause_after(0.0, saving_share)
    saved, written = resume, None
    try:
        for done in train(
            federation,
            method,
            rounds=rounds,
            seed=seed,
            participation=participation,
            patience=patience,
            resume=resume,
        ):
            yield done
            finished = done.progress
            now = time.monotonic()
            if now > due:
                written = save_checkpoint(folder, finished, written)
                saved, took = finished, time.monotonic() - now
                due = time.monotonic() + pause_after(took, saving_share)
            if time.monotonic() - started > seconds:
                break
    finally:
        if finished is not None and finished is not saved:
            save_checkpoint(folder, finished, written)


def pause_after(took: float, saving_share: float) -> float:
    """Return for how long not to save after a checkpoint that took so many seconds."""
    if saving_share == 0:
        return SECONDS_BETWEEN_CHECKPOINTS
    return min(SECONDS_BETWEEN_CHECKPOINTS, took / saving_share)


def restore(
    folder: str | Path, federation: Federation, method: AnyMethod[StateT]
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
        kept = keep_rounds(path, _parsed, restored_round)
        self._before = kept[-1].seconds if kept else 0.0
        self._started = time.monotonic()

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
        append_entry(self._path, asdict(point))


def read_history(path: Path) -> list[HistoryPoint]:
    """Read a history file; a last line that was cut off by a crash is not part of it."""
    return read_records(path, _parsed)


def _parsed(entry: Any) -> HistoryPoint:
    risks, weights = tuple(entry["risks"]), tuple(entry["weights"])
    return HistoryPoint(entry["round"], entry["seconds"], risks, weights)
