"""Following a job on NVIDIA FLARE: its rounds as they happen, and when it must be submitted again.

A process that was lost, silence, or a site that is back without the job: each ends the job.
"""

import time
from collections.abc import Generator

from nvflare.fuel.flare_api.flare_api import Session

from fedminmax.federation.flare_session import (
    ENDED,
    came_back_without_the_job,
    news_of,
    status_of,
    stop,
)
from fedminmax.federation.live_round import Event, Notice
from fedminmax.federation.network_plan import NetworkPlan
from fedminmax.federation.participants import Participants

SECONDS_BETWEEN_LOOKS = 0.3
SECONDS_BETWEEN_STATUS = 2.0
SECONDS_BETWEEN_CALLS = 5.0
# So long may a job that is listed as running say nothing: before its first word, and after one.
SECONDS_TO_BEGIN = 600.0
SECONDS_OF_SILENCE = 120.0


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
            if came_back_without_the_job(session, plan.sites):
                stop(session, job)
                return True
        time.sleep(SECONDS_BETWEEN_LOOKS)
