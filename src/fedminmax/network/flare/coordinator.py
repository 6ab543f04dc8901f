"""The coordinator of runs on NVIDIA FLARE: submits a job, follows it, fetches its results.

A plan becomes a job (``job_files``). While it runs, ``follow`` yields its rounds as they happen.

A job is ended early if a process was lost, if nothing is heard from the job for too long, or if a
site is back without the job. NVIDIA FLARE does not bring back a job that lost a process: such
a job is submitted again, and goes on after the last round that the server saved. Nor can a site
that was away join a running job: when it is back, the job is stopped and submitted again, with it.

``observe_jobs`` looks at a job without taking part in it: nothing is submitted, stopped or fetched.
"""

import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nvflare.fuel.flare_api.flare_api import Session

from fedminmax.core.errors import InputError
from fedminmax.core.files import write_text
from fedminmax.network.flare.job_files import write_job
from fedminmax.network.flare.session import (
    ENDED,
    GONE,
    MAX_RUNS_PER_PLAN,
    RUNNING,
    Participants,
    Unsupervised,
    connected,
    fetch_results,
    has_idle_site,
    is_known,
    list_jobs,
    news_of,
    reason_of,
    server_start_time,
    status_of,
    stop,
    submit,
    submitted_at,
    wait_for_sites,
)
from fedminmax.network.server.log import Event, LiveRound, News, Notice, run_folder
from fedminmax.network.server.run import Outcome, read_outcome
from fedminmax.network.wire.plan import NetworkPlan
from fedminmax.training.round_record import ROUNDS_FILE, RoundRecord, read_rounds

POLL_SECONDS = 0.3
SECONDS_BETWEEN_STATUS = 2.0
SECONDS_BETWEEN_CALLS = 5.0
# How long a running job may be silent: before its first report, and after one.
SECONDS_TO_BEGIN = 600.0
SECONDS_OF_SILENCE = 120.0
RESULTS = "results"
JOB_FILE = "job.txt"
REFUSED = "FINISHED:FAILED_TO_RUN"
STOPPED = "FINISHED:ABORTED"
MAX_LOSSES = 5
CONNECTION_LOST = Notice("the connection to the server was lost; connecting again")
LOST = Notice("the job was lost; it is submitted again and goes on after its last round")


def follow(
    session: Session,
    job: str,
    plan: NetworkPlan,
    participants: Participants,
    seen: list[int],
) -> Generator[Event, None, bool]:
    """Yield what happens until the job has ended; return whether we ended it to submit it again."""
    notice = None
    looked = called = time.monotonic()
    silent_until = looked + SECONDS_TO_BEGIN
    while True:
        news = news_of(session, job, seen)
        if news is not None:
            silent_until = time.monotonic() + SECONDS_OF_SILENCE
            for done in news.live_rounds:
                seen[done.run] = done.round.round
                yield done
            if news.notice and news.notice != notice:
                yield Notice(news.notice)
            notice = news.notice
        if participants.lost():
            stop(session, job)
            return True
        if news is None or time.monotonic() - looked > SECONDS_BETWEEN_STATUS:
            looked = time.monotonic()
            if status_of(session, job).startswith(ENDED):
                return False
            if looked > silent_until:
                stop(session, job)
                return True
        # A job that has news has reached all its sites; after its last round they may go.
        rounds_left = any(run.rounds > n for run, n in zip(plan.runs, seen, strict=True))
        due = time.monotonic() - called > SECONDS_BETWEEN_CALLS
        if news is not None and rounds_left and due:
            called = time.monotonic()
            if has_idle_site(session, plan.sites):
                stop(session, job)
                return True
        time.sleep(POLL_SECONDS)


@dataclass(frozen=True)
class Coordinator:
    """A person with a kit; ``seconds`` is how long to wait for the server and for sites."""

    kit: Path
    participants: Participants
    seconds: float

    def run(self, plan: NetworkPlan, place: Path) -> Generator[Event]:
        """Run the plan to its end, from wherever it is; yield each new round, and other news.

        ``place`` is a folder that remembers the job; what the run leaves is in its results folder.
        """
        seen = [0] * len(plan.runs)
        losses = 0
        job = self._job_to_follow(place)
        while losses < MAX_LOSSES:
            before = list(seen)
            lost = False
            try:
                with connected(self.kit, self.seconds, self.participants.check) as session:
                    if job is not None and not _runs_or_ended(session, job):
                        yield LOST
                        job = None
                    if job is None:
                        job = yield from self._submit(session, plan, place)
                    ours = yield from follow(session, job, plan, self.participants, seen)
                    outcome = None if ours else _outcome(session, job, place)
                    if outcome is not None:
                        yield from _unseen(plan, place, seen, outcome)
                        yield from _notices(outcome)
                        return
                    job, lost = None, True
            except GONE:
                yield CONNECTION_LOST
            self.participants.restart_dead()
            if lost:
                losses = losses + 1 if seen == before else 1
                yield LOST
        raise InputError(
            f"the job was lost {MAX_LOSSES} times without a new round; look into the server's log "
            "and its disk, and resume the run: everything saved is kept"
        )

    def stop(self, place: Path) -> str:
        """Stop the run of this folder; return a message about the result."""
        job = read_job(place)
        if job is None:
            raise InputError(f"{place.parent} has no run that was submitted; nothing to stop")
        with connected(self.kit, self.seconds, self.participants.check) as session:
            if not is_known(session, job) or status_of(session, job).startswith(ENDED):
                return "the run had ended already"
            stop(session, job)
        return "the run stops; every finished round is saved"

    def _job_to_follow(self, place: Path) -> str | None:
        """Return the job of an earlier call, unless it ended before its run did."""
        job = read_job(place)
        if job is None:
            return None
        with connected(self.kit, self.seconds, self.participants.check) as session:
            if not is_known(session, job):
                return None
            if not status_of(session, job).startswith(ENDED):
                return job
            outcome = _fetched_outcome(session, job, place)
        return job if outcome is not None and outcome.error is None else None

    def _submit(
        self, session: Session, plan: NetworkPlan, place: Path
    ) -> Generator[Event, None, str]:
        least = plan.minimum_sites
        missing = wait_for_sites(session, plan.sites, self.seconds, self.participants.check)
        if len(plan.sites) - len(missing) < least:
            raise InputError(
                f"{len(plan.sites) - len(missing)} of {len(plan.sites)} sites are connected, at "
                f"least {least} are needed; {', '.join(missing)} did not connect within "
                f"{self.seconds:g} seconds: start them, and resume the run"
            )
        if missing:
            yield Notice(f"begins without {', '.join(missing)}: not connected")
        job = submit(session, write_job(place / "job", plan))
        write_text(place / JOB_FILE, job + "\n")
        return job


def _runs_or_ended(session: Session, job: str) -> bool:
    """Return whether the job can be followed: one that a restarted server lists is not running."""
    if status_of(session, job).startswith(ENDED):
        return True
    return server_start_time(session) < submitted_at(session, job)


def _fetched_outcome(session: Session, job: str, place: Path) -> Outcome | None:
    """Fetch how an ended job's run ended; None if the run did not."""
    if not fetch_results(session, job, place / RESULTS):
        return None
    return read_outcome(place / RESULTS)


def _outcome(session: Session, job: str, place: Path) -> Outcome | None:
    """Return how the run ended; None if its job was lost."""
    status = status_of(session, job)
    if status == REFUSED:
        raise InputError(f"the job was refused: {reason_of(session, job)}")
    outcome = _fetched_outcome(session, job, place)
    if outcome is None and status == STOPPED:
        raise InputError(
            "the run was stopped; every finished round is saved: resume it with 'fedminmax "
            "federation resume'"
        )
    return outcome


def _unseen(
    plan: NetworkPlan, place: Path, seen: Sequence[int], outcome: Outcome
) -> Iterator[LiveRound]:
    """Yield the rounds that came after the last look."""
    for number in range(len(plan.runs)):
        rounds = read_rounds(run_folder(place / RESULTS, plan, number) / ROUNDS_FILE)
        for entry in rounds:
            if entry.round > seen[number]:
                yield LiveRound(number, entry, outcome.group_names, outcome.small_groups)


def _notices(outcome: Outcome) -> Iterator[Notice]:
    """Yield the run's notices about sites; a failed run is an error."""
    for reason in (*outcome.refused.values(), *outcome.unmeasured.values()):
        yield Notice(reason)
    if outcome.error is not None:
        raise InputError(outcome.error)


def read_job(place: Path) -> str | None:
    """Return the job of a run that was submitted; None if there is none."""
    path = place / JOB_FILE
    return path.read_text(encoding="utf-8").strip() if path.exists() else None


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
