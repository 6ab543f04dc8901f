"""Look at a running job without taking part in it: nothing is submitted, stopped or fetched."""

from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from fedminmax.network.flare.coordinator import read_job
from fedminmax.network.flare.session import (
    ENDED,
    GONE,
    MAX_RUNS_PER_PLAN,
    RUNNING,
    Unsupervised,
    connected,
    list_jobs,
    news_of,
)
from fedminmax.network.server.news import News
from fedminmax.training.round_record import RoundRecord


@dataclass(frozen=True)
class ObservedJob:
    """A job at one moment: its run's name, the engine's status, and its news if it is running.

    Without a ``job`` there is none; ``is_lost`` means that the server does not answer.
    """

    job: str | None
    name: str = ""
    status: str = ""
    news: News | None = None
    is_lost: bool = False

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended, in whatever way."""
        return self.status.startswith(ENDED)


def observe_jobs(kit: Path, seconds: float, place: Path | None = None) -> Generator[ObservedJob]:
    """Yield how a job is, at each call, with the rounds that were not yet yielded.

    The job is the one that ``place`` remembers, or else the newest one that runs at the server.
    """
    last_job, seen = None, [0] * MAX_RUNS_PER_PLAN
    while True:
        try:
            with connected(kit, seconds, Unsupervised().check) as session:
                while True:
                    jobs = list_jobs(session)
                    if place is not None:
                        own = read_job(place)
                        jobs = [entry for entry in jobs if entry[0] == own]
                    running = [entry for entry in jobs if entry[2] == RUNNING]
                    if not jobs:
                        yield ObservedJob(None)
                        continue
                    job, name, status = (running or jobs)[0]
                    if job != last_job:
                        # A job that is submitted again may begin before rounds that were seen.
                        last_job, seen = job, [0] * MAX_RUNS_PER_PLAN
                    news = news_of(session, job, seen) if status == RUNNING else None
                    for number, entry in news.rounds if news else ():
                        seen[number] = _later(seen[number], entry)
                    yield ObservedJob(job, name, status, news)
        except GONE:
            yield ObservedJob(last_job, is_lost=True)


def _later(seen: int, entry: RoundRecord) -> int:
    return max(seen, entry.round)
