"""How far each run of a study is, and how long the rest will take, from its files alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedminmax.federation.resumable import read_history
from fedminmax.methods.catalogue import pace_of
from fedminmax.report.run_result import read_result
from fedminmax.studies.finish import is_finished, run_folder
from fedminmax.studies.study import RunPlan


@dataclass(frozen=True)
class RunStatus:
    """One run: its last recorded round and the time spent so far."""

    plan: RunPlan
    round: int
    seconds: float
    finished: bool

    @property
    def cost_done(self) -> float:
        """Gradient evaluations behind the run."""
        return self.plan.cost * self.round / self.plan.rounds

    @property
    def cost_left(self) -> float:
        """Gradient evaluations before the run."""
        return self.plan.cost - self.cost_done


def read_status(plans: Sequence[RunPlan], folder: Path) -> list[RunStatus]:
    """Look at each run's files."""
    return [_status(plan, run_folder(folder, plan)) for plan in plans]


def seconds_left(status: RunStatus, others: Sequence[RunStatus]) -> float | None:
    """Estimate a run's remaining time from its own pace, or that of the runs most like it.

    None as long as no run of the study has recorded a round.
    """
    if status.finished:
        return 0.0
    pace = pace_of(status.plan.method)
    alike = [one for one in others if pace_of(one.plan.method) is pace]
    for witnesses in ([status], alike, others):
        cost = sum(one.cost_done for one in witnesses)
        if cost > 0:
            return status.cost_left * sum(one.seconds for one in witnesses) / cost
    return None


def _status(plan: RunPlan, folder: Path) -> RunStatus:
    result = read_result(folder)
    if result is not None and is_finished(plan, folder):
        return RunStatus(plan, result.rounds, result.seconds, finished=True)
    history = read_history(folder / "history.jsonl")
    if not history:
        return RunStatus(plan, 0, 0.0, finished=False)
    return RunStatus(plan, history[-1].round, history[-1].seconds, finished=False)
