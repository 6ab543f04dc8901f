"""Waiting for sites at work: each for its own time, and none that is no longer connected.

A site that was killed, or whose network is down, does not say goodbye. So whoever lets others wait
is asked now and then whether it is there, which a site can say while it works.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Protocol

from fedminmax.federation.transport import Answer

SECONDS_BETWEEN_LOOKS = 5.0
# So often in a row must a site be missing: one question can get lost, or come at a bad moment.
LOOKS_UNTIL_GONE = 2


class Arrivals(Protocol):
    """Answers that come in."""

    def next_within(self, seconds: float) -> Answer | None:
        """Return the next answer; None if none came within these seconds."""
        ...


def wait_for_all(
    arrivals: Arrivals,
    limits: Mapping[str, float],
    who_is_there: Callable[[list[str]], Collection[str]],
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Answer]:
    """Yield the answers of these sites, each of which may take its own limit in seconds."""
    started = clock()
    next_look = started + SECONDS_BETWEEN_LOOKS
    waiting = dict(limits)
    missing: dict[str, int] = {}
    while waiting:
        until = min(next_look, started + min(waiting.values()))
        answer = arrivals.next_within(max(0.0, until - clock()))
        if answer is not None:
            if waiting.pop(answer.site, None) is not None:
                yield answer
            continue
        for site in [site for site, limit in waiting.items() if clock() >= started + limit]:
            limit = waiting.pop(site)
            yield Answer(site, failure=f"{site} did not answer within {limit:g} seconds", late=True)
        if waiting and clock() >= next_look:
            there = who_is_there(list(waiting))
            missing = {site: missing.get(site, 0) + 1 for site in waiting if site not in there}
            for site in [site for site, looks in missing.items() if looks >= LOOKS_UNTIL_GONE]:
                del waiting[site]
                yield Answer(site, failure=f"{site} is no longer connected", late=True)
            next_look = clock() + SECONDS_BETWEEN_LOOKS
