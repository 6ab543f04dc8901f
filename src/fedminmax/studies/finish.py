"""Finish the runs of a study, and estimate how long the rest will take.

Several calls, at once or one after another, share the work: each takes runs that no other process
holds, and continues from the last checkpoint. The progress of each run and the remaining time are
read from the runs' files alone.
"""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from pydantic import TypeAdapter

from fedminmax.core.convergence import judge_convergence
from fedminmax.core.files import JsonLog
from fedminmax.core.iterates import STANDARD_ITERATES, Iterate
from fedminmax.methods.card import Pace, goal_of, pace_of
from fedminmax.methods.method import JudgingState, SelectingState
from fedminmax.methods.qfedavg import QFedAvgState
from fedminmax.runs.folder import TESTS_FILE, claim_run
from fedminmax.studies.scores import (
    GroupScores,
    RunResult,
    mix_scores,
    read_result,
    write_result,
)
from fedminmax.studies.study import RunPlan, Study, papers_iterate
from fedminmax.training.checkpoint import resume_run
from fedminmax.training.progress import Progress, answer_of, personal_models
from fedminmax.training.round_record import ROUNDS_FILE, RoundRecord, read_rounds
from fedminmax.training.simulation import Simulation


@dataclass(frozen=True)
class ScoredRound:
    """The test scores of a run's iterates after a round."""

    round: int
    scores: dict[Iterate, GroupScores]

    @classmethod
    def from_json(cls, entry: Any) -> Self:
        """Read a line of the file of scored rounds."""
        read: Self = SCORED_ROUND.validate_python(entry)
        return read

    def as_json(self) -> dict[str, Any]:
        """Return the round as a line."""
        line: dict[str, Any] = SCORED_ROUND.dump_python(self, mode="json")
        return line


SCORED_ROUND: TypeAdapter[Any] = TypeAdapter(ScoredRound)


def read_scored_rounds(path: Path) -> list[ScoredRound]:
    """Read a run's file of scored rounds, one line per round that was tested."""
    return JsonLog(path, ScoredRound).read()


@dataclass(frozen=True)
class Tick:
    """What a display needs: a run's progress, and a warning about a damaged file."""

    run: int
    round: int
    warning: str | None = None


def run_folder(folder: Path, plan: RunPlan) -> Path:
    """Return the folder of a run's files."""
    return folder / "runs" / plan.key


def is_finished(plan: RunPlan, folder: Path) -> bool:
    """Whether the run in this folder has the plan's rounds, or met its stopping rule."""
    result = read_result(folder)
    if result is None or result.rounds >= plan.rounds:
        return result is not None
    return result.gap_left is not None and result.gap_left <= getattr(
        plan.method, "optimality_gap", 0.0
    )


def finish_runs(
    study: Study, plans: Sequence[RunPlan], folder: Path, seconds: float = math.inf
) -> Iterator[Tick]:
    """Continue all unfinished runs, yielding each round; stop at a checkpoint after ``seconds``.

    Runs that another process holds are skipped.
    """
    deadline = time.monotonic() + seconds
    for number, plan in enumerate(plans):
        own = run_folder(folder, plan)
        with claim_run(own) as ours:
            if ours and not is_finished(plan, own):
                for tick in _continue_run(study, plan, own, deadline - time.monotonic()):
                    yield Tick(number, tick.round, tick.warning)
                if time.monotonic() > deadline:
                    return
        yield Tick(number, plan.rounds)


def _continue_run(study: Study, plan: RunPlan, folder: Path, seconds: float) -> Iterator[Tick]:
    """Train a run from its checkpoint; write ``result.json`` if it reaches its last round."""
    federation = study.federation(plan)
    training = resume_run(
        folder,
        federation,
        plan.method,
        rounds=plan.rounds,
        seed=study.fold_seed(plan.fold),
        seconds=seconds,
    )
    with closing(training):
        so_far = next(training)
        log = JsonLog(folder / ROUNDS_FILE, RoundRecord)
        scored = JsonLog(folder / TESTS_FILE, ScoredRound)
        scored.drop_after(so_far.round)
        yield Tick(0, so_far.round, so_far.warning)
        for so_far in training:
            # The log also records the time spent, and some methods' rounds are long or few.
            thinned = so_far.round > 10 and pace_of(plan.method) is Pace.ONE_STEP
            if so_far.record is not None and not (thinned and so_far.round % 10):
                log.add(so_far.record)
            tested = plan.rounds_between_tests and so_far.round % plan.rounds_between_tests == 0
            if tested and so_far.progress is not None:
                scores = _scores(study, federation, so_far.progress)
                scored.add(ScoredRound(so_far.round, scores))
            yield Tick(0, so_far.round)
    if so_far.is_finished and so_far.progress is not None:
        history = read_rounds(folder / ROUNDS_FILE)
        result = _result(study, plan, federation, so_far.progress, history, so_far.seconds)
        write_result(folder, result)


def _scores(
    study: Study, federation: Simulation, progress: Progress[Any]
) -> dict[Iterate, GroupScores]:
    """Test every iterate; the best one so far only if validation rows chose it."""
    chosen = progress.iterates.best.chosen.is_measured
    return {
        which: study.scores(federation.model(progress.iterates.parameters(which)))
        for which in (*STANDARD_ITERATES, *([Iterate.BEST] if chosen else []))
    }


def _result(
    study: Study,
    plan: RunPlan,
    federation: Simulation,
    progress: Progress[Any],
    history: Sequence[RoundRecord],
    seconds: float,
) -> RunResult:
    """Score a finished run: its iterates, its own choice, its sites' own models."""
    state, best = progress.state, progress.iterates.best.chosen
    answer = answer_of(progress, Iterate.BEST if plan.validation else papers_iterate(plan.method))
    shown = answer or papers_iterate(plan.method)
    chosen = _chosen_scores(study, federation, progress)
    left = state.remaining if isinstance(state, JudgingState) else None
    convergence = judge_convergence(
        history,
        federation.census.counts.sum(dim=0).tolist(),
        goal_of(plan.method),
        answer=shown if chosen is None else None,
        included=federation.census.included.tolist(),
        left=left,
    )
    return RunResult(
        setting=plan.setting,
        method=plan.title,
        fold=plan.fold,
        groups=federation.group_names,
        rounds=progress.round,
        gradient_evaluations=progress.gradient_evaluations,
        seconds=round(seconds, 1),
        shown=shown,
        scores=_scores(study, federation, progress),
        step_factor=state.step_factor if isinstance(state, QFedAvgState) else None,
        convergence=convergence,
        chosen=chosen,
        personal=_personal_scores(study, federation, progress),
        gap_left=left,
        validation=best if best.is_measured else None,
    )


def _chosen_scores(
    study: Study, federation: Simulation, progress: Progress[Any]
) -> GroupScores | None:
    """Score the model or mixture that the method chose itself; None if it does not choose."""
    if not isinstance(progress.state, SelectingState):
        return None
    members = progress.state.selected
    share = torch.full((len(members), federation.census.groups), 1.0 / len(members))
    return mix_scores([study.scores(federation.model(member)) for member in members], share)


def _personal_scores(
    study: Study, federation: Simulation, progress: Progress[Any]
) -> GroupScores | None:
    """Score the sites' own models, each on its site's share of every group's rows."""
    if progress.kept.numel() == 0:
        return None
    counts = federation.census.counts.to(torch.float64)
    shares = counts / counts.sum(dim=0)
    scores, of_groups = [], []
    for own, share in zip(progress.kept, shares, strict=True):
        for model, groups in personal_models(federation, own):
            scores.append(study.scores(model))
            of_groups.append(share * groups)
    return mix_scores(scores, torch.stack(of_groups))


@dataclass(frozen=True)
class RunStatus:
    """One run: its last recorded round and the time spent so far."""

    plan: RunPlan
    round: int
    seconds: float
    finished: bool

    @property
    def cost_done(self) -> float:
        """Gradient evaluations done so far."""
        return self.plan.cost * self.round / self.plan.rounds


def read_status(plans: Sequence[RunPlan], folder: Path) -> list[RunStatus]:
    """Read the status of each run from its files."""
    return [_status(plan, run_folder(folder, plan)) for plan in plans]


def seconds_left(status: RunStatus, others: Sequence[RunStatus]) -> float | None:
    """Estimate a run's remaining time from its own speed, or that of the most similar runs.

    None until a run of the study has recorded a round.
    """
    if status.finished:
        return 0.0
    pace = pace_of(status.plan.method)
    alike = [one for one in others if pace_of(one.plan.method) is pace]
    for runs in ([status], alike, others):
        cost = sum(one.cost_done for one in runs)
        if cost > 0:
            return (status.plan.cost - status.cost_done) * sum(one.seconds for one in runs) / cost
    return None


def _status(plan: RunPlan, folder: Path) -> RunStatus:
    result = read_result(folder)
    if result is not None and is_finished(plan, folder):
        return RunStatus(plan, result.rounds, result.seconds, finished=True)
    history = read_rounds(folder / ROUNDS_FILE)
    if not history:
        return RunStatus(plan, 0, 0.0, finished=False)
    return RunStatus(plan, history[-1].round, history[-1].seconds, finished=False)
