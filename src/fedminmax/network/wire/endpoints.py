"""What a server may ask of a site: the endpoints by name, their arguments, and one question."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated

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
