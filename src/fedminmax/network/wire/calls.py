"""What a server may ask of its sites, by name; how it calls them, and how it waits for them.

This is independent of the transport, and imports nothing heavy. A site that was killed, or whose
network is down, does not sign off. So a site that has not replied yet is regularly checked for
presence, to which it can reply while it works, and the server does not wait for a site that is no
longer connected.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Protocol

from pydantic import ConfigDict, Field, with_config

MAX_NUMBER = 2**53
Number = Annotated[int, Field(ge=0, le=MAX_NUMBER)]
NO_ARGUMENTS: Mapping[str, object] = MappingProxyType({})


class Endpoint(StrEnum):
    """What a server may call; all but ``present`` are functions of ``site.Site``."""

    PRESENT = "present"
    PREPARE = "prepare"
    KEYS = "keys"
    SET_ROSTER = "set_roster"
    COUNT_VALUES = "count_values"
    NAME_VALUES = "name_values"
    TAKE_VALUES = "take_values"
    SUMMARISE = "summarise"
    COUNT_CELLS = "count_cells"
    ENCODE = "encode"
    SMOOTH = "smooth"
    COUNT_ROWS = "count_rows"
    CURVATURE = "curvature"
    TAKE_RATE = "take_rate"
    ANSWER = "answer"
    VALIDATE = "validate"
    CERTIFY = "certify"
    MEASURE = "measure"
    UNMASK = "unmask"
    TRACE = "trace"


# What each takes; of a masked question also SECURE, which says how to mask the answer.
ARGUMENTS: Mapping[Endpoint, frozenset[str]] = {
    Endpoint.PREPARE: frozenset({"plan"}),
    Endpoint.KEYS: frozenset(),
    Endpoint.SET_ROSTER: frozenset({"roster"}),
    Endpoint.COUNT_VALUES: frozenset(),
    Endpoint.NAME_VALUES: frozenset({"totals"}),
    Endpoint.TAKE_VALUES: frozenset({"totals", "values"}),
    Endpoint.SUMMARISE: frozenset(),
    Endpoint.COUNT_CELLS: frozenset({"grids", "stage"}),
    Endpoint.ENCODE: frozenset({"encoding", "sizes", "stage", "start"}),
    Endpoint.SMOOTH: frozenset({"order", "pairs"}),
    Endpoint.COUNT_ROWS: frozenset(),
    Endpoint.CURVATURE: frozenset({"directions"}),
    Endpoint.TAKE_RATE: frozenset({"rate"}),
    Endpoint.ANSWER: frozenset({"run", "order"}),
    Endpoint.VALIDATE: frozenset({"run", "order"}),
    Endpoint.CERTIFY: frozenset({"run", "order"}),
    Endpoint.MEASURE: frozenset({"models"}),
    Endpoint.UNMASK: frozenset({"message"}),
    Endpoint.TRACE: frozenset({"message"}),
}
SECURE = "secure"
# Their answers are numbers from the table, and are masked where the plan asks for it.
WITH_NUMBERS = frozenset(
    {
        Endpoint.COUNT_VALUES,
        Endpoint.SUMMARISE,
        Endpoint.COUNT_CELLS,
        Endpoint.COUNT_ROWS,
        Endpoint.SMOOTH,
        Endpoint.CURVATURE,
        Endpoint.ANSWER,
        Endpoint.VALIDATE,
        Endpoint.CERTIFY,
        Endpoint.MEASURE,
    }
)
# Those whose content is compared with what was asked before; the others are the same every time.
COMPARED = WITH_NUMBERS - {Endpoint.COUNT_VALUES, Endpoint.SUMMARISE, Endpoint.COUNT_ROWS} | {
    Endpoint.PREPARE,
    Endpoint.NAME_VALUES,
    Endpoint.TAKE_VALUES,
    Endpoint.ENCODE,
    Endpoint.TAKE_RATE,
}


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class Question:
    """One question: ``run`` is the number among the plan's runs, ``round`` counts from 1.

    For questions outside the rounds, ``round`` counts how often they came in this job, or at which
    stage of an agreement. ``attempt`` counts how often the answer was masked.
    """

    endpoint: Endpoint
    run: Number = 0
    round: Number = 0
    phase: Number = 0
    attempt: Number = 0

    @property
    def topic(self) -> "Question":
        """The same question, whichever attempt."""
        return replace(self, attempt=0)

    @property
    def turn(self) -> tuple[int, ...]:
        """Where it comes among a job's questions; a model is certified after its last round."""
        return (self.run, self.endpoint is Endpoint.CERTIFY, self.round, self.phase)

    def __str__(self) -> str:
        if self.endpoint == Endpoint.ANSWER:
            return f"round {self.round}, question {self.phase + 1}, of run {self.run + 1}"
        if self.endpoint == Endpoint.CERTIFY:
            return f"round {self.round} of the proof of run {self.run + 1}"
        return f"'{self.endpoint}'"


# How long a site may take to reply to a presence check.
PRESENCE_TIMEOUT = 5.0
NO_LIMITS: Mapping[str, float] = MappingProxyType({})
POLL_SECONDS = 5.0
# How many checks in a row a site must miss: a single one may get lost or be delayed.
CHECKS_UNTIL_GONE = 2
# Minimum time before the server gives up on a site, unless the plan sets another.
MIN_SECONDS = 30.0


@dataclass(frozen=True, eq=False)
class Answer:
    """The result for one site: a message, or why there is none, and whether it was too late."""

    site: str
    message: object = None
    _: KW_ONLY
    failure: str | None = None
    late: bool = False


@dataclass(frozen=True, eq=False)
class Answers:
    """The results for all sites: messages by site, and the reasons of those that sent none."""

    messages: Mapping[str, object]
    failures: Mapping[str, str]


class Transport(Protocol):
    """Calls an endpoint at several sites at once."""

    def __call__(
        self,
        sites: Sequence[str],
        endpoint: Endpoint,
        payload: Mapping[str, object],
        seconds: Mapping[str, float] = NO_LIMITS,
    ) -> Iterator[Answer]:
        """Call these sites and yield each one's answer as it arrives.

        A site may take its own ``seconds``, or the agreed time if it has none; the call does not
        wait for a site that is no longer connected.
        """
        ...


def gather(answers: Iterable[Answer]) -> Answers:
    """Wait for all answers."""
    messages: dict[str, object] = {}
    failures: dict[str, str] = {}
    for answer in answers:
        if answer.failure is None:
            messages[answer.site] = answer.message
        else:
            failures[answer.site] = answer.failure
    return Answers(messages, failures)


def present_sites(transport: Transport, sites: Sequence[str]) -> Collection[str]:
    """Return which of these sites are connected."""
    seconds = dict.fromkeys(sites, PRESENCE_TIMEOUT)
    return gather(transport(sites, Endpoint.PRESENT, {}, seconds)).messages


class Arrivals(Protocol):
    """Answers that come in."""

    def next_within(self, seconds: float) -> Answer | None:
        """Return the next answer; None if none came within these seconds."""
        ...


def wait_for_all(
    arrivals: Arrivals,
    limits: Mapping[str, float],
    find_connected: Callable[[list[str]], Collection[str]],
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Answer]:
    """Yield the answers of these sites, each of which may take its own limit in seconds."""
    started = clock()
    next_look = started + POLL_SECONDS
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
            there = find_connected(list(waiting))
            missing = {site: missing.get(site, 0) + 1 for site in waiting if site not in there}
            for site in [site for site, looks in missing.items() if looks >= CHECKS_UNTIL_GONE]:
                del waiting[site]
                yield Answer(site, failure=f"{site} is no longer connected", late=True)
            next_look = clock() + POLL_SECONDS
