"""What a person sees of a federation on NVIDIA FLARE: who is connected, and how the runs are."""

from dataclasses import dataclass, field
from pathlib import Path

from nvflare.fuel.flare_api.flare_api import Session

from fedminmax.federation.flare_login import connected
from fedminmax.federation.flare_session import list_jobs, news_of, sites_present
from fedminmax.federation.participants import Elsewhere

RUNNING = "RUNNING"
# A plan has a method and a baseline.
RUNS_OF_A_PLAN = 2


@dataclass(frozen=True)
class RunStatus:
    """One run: the engine's word for its state, and where it is if it runs.

    ``risks`` are by group, but for groups that are too small to be trained for.
    """

    name: str
    status: str
    round: int | None = None
    risks: dict[str, float] = field(default_factory=dict)
    notice: str | None = None


@dataclass(frozen=True)
class FederationStatus:
    """When each connected site was last heard of, and all runs, the newest first."""

    heard: dict[str, float]
    runs: tuple[RunStatus, ...]


def look_at_federation(kit: Path, seconds: float) -> FederationStatus:
    """Ask the server, for at most these seconds."""
    with connected(kit, seconds, Elsewhere().check) as session:
        jobs = list_jobs(session)
        runs = tuple(_run_status(session, *job) for job in jobs)
        return FederationStatus(sites_present(session), runs)


def _run_status(session: Session, job: str, name: str, status: str) -> RunStatus:
    news = news_of(session, job, [0] * RUNS_OF_A_PLAN) if status == RUNNING else None
    if news is None or not news.rounds:
        return RunStatus(name, status, notice=news.notice if news else None)
    last = news.live_rounds[-1]
    return RunStatus(name, status, last.round.round, last.risks, news.notice)
