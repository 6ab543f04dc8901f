"""The loop of every run: go on from the last checkpoint, train, and record each round.

A command, a server and a study differ in what they do with the rounds and with the answer; how a
run continues, what its log keeps and when it is finished is the same for all of them.
"""

import math
import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Generic

from fedminmax.core.json_log import JsonLog
from fedminmax.methods.method import AnyMethod, StateT, is_done
from fedminmax.training.checkpoint import restore, train_with_checkpoints
from fedminmax.training.progress import Progress
from fedminmax.training.protocol import Federation
from fedminmax.training.round_record import ROUNDS_FILE, RoundRecord, record_round
from fedminmax.training.train import Round, is_out_of_patience


@dataclass(frozen=True)
class Stopwatch:
    """The seconds of a run over all calls: those before this one, and those since its start."""

    before: float
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Seconds until now, to the millisecond."""
        return round(self.before + time.monotonic() - self.started, 3)


@dataclass(frozen=True, eq=False)
class RunSoFar(Generic[StateT]):
    """A run as it was restored, or after the round that has just been done.

    ``progress`` is None before the first round; ``done`` and ``record`` are the round's. The
    ``warning`` is about a damaged checkpoint that was skipped.
    """

    progress: Progress[StateT] | None
    seconds: float
    _: KW_ONLY
    is_finished: bool
    done: Round[StateT] | None = None
    record: RoundRecord | None = None
    warning: str | None = None

    @property
    def round(self) -> int:
        """The number of the last finished round; 0 before the first."""
        return self.progress.round if self.progress else 0


def resume_run(
    folder: Path | None,
    federation: Federation,
    method: AnyMethod[StateT],
    *,
    rounds: int,
    seed: int,
    participation: float = 1.0,
    patience: int | None = None,
    needs_patience: bool = True,
    seconds: float = math.inf,
    saving_share: float = 0.0,
    unit: float = 1.0,
) -> Generator[RunSoFar[StateT]]:
    """Yield the run as it was restored, then after each round up to its last one.

    A round counts as finished when the caller's loop body has returned, which is to log its
    record. No round begins after ``seconds``, except for the first one.

    Args:
        folder: keeps checkpoints and the log of rounds; None keeps nothing.
        federation: the sites.
        method: what is trained.
        rounds: the last round, unless the method ends the run before.
        seed: of all randomness of the training.
        participation: the share of sites that take part in a round.
        patience: stop after this many rounds without improvement on validation rows.
        needs_patience: whether patience without validation rows is a mistake; otherwise it is
            ignored, because of a handful of rows none may be set aside.
        seconds: how long to train.
        saving_share: the share of the time that checkpoints may take, if they are to be frequent.
        unit: converts risks to the target's unit, squared.
    """
    if not (len(federation.validation_rows) or needs_patience):
        patience = None
    progress: Progress[StateT] | None = None
    warning, before = None, 0.0
    if folder is not None:
        progress, warning = restore(folder, federation, method)
        log = JsonLog(folder / ROUNDS_FILE, RoundRecord)
        kept = log.drop_after(progress.round if progress else 0)
        before = kept[-1].seconds if kept else 0.0
    watch = Stopwatch(before)

    def is_finished(progress: Progress[StateT] | None) -> bool:
        return progress is not None and (
            progress.round >= rounds
            or is_done(method, progress.state)
            or is_out_of_patience(progress, patience)
        )

    yield RunSoFar(progress, watch.seconds, is_finished=is_finished(progress), warning=warning)
    rounds_to_come = train_with_checkpoints(
        folder,
        federation,
        method,
        rounds=rounds,
        seed=seed,
        resume=progress,
        participation=participation,
        patience=patience,
        seconds=seconds,
        saving_share=saving_share,
    )
    with closing(rounds_to_come) as training:
        for done in training:
            record = record_round(done, method, watch.seconds, unit)
            yield RunSoFar(
                done.progress,
                record.seconds,
                is_finished=is_finished(done.progress),
                done=done,
                record=record,
            )
