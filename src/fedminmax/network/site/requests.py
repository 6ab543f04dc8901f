"""What a server may request of a site, by name."""

from dataclasses import KW_ONLY, asdict, dataclass
from enum import Enum
from typing import Any, Self


class Endpoint(Enum):
    """What a server may request; each value is the name of the site's function."""

    PREPARE = "prepare"
    KEYS = "keys"
    SET_ROSTER = "set_roster"
    SUMMARISE = "summarise"
    ENCODE = "encode"
    COUNT_ROWS = "count_rows"
    CURVATURE = "curvature"
    TAKE_RATE = "take_rate"
    ANSWER = "answer"
    VALIDATE = "validate"
    CERTIFY = "certify"
    MEASURE = "measure"
    UNMASK = "unmask"
    TRACE = "trace"


# Those whose content is compared with what was asked before; the others are the same every time.
COMPARED = frozenset(
    {
        Endpoint.PREPARE,
        Endpoint.ENCODE,
        Endpoint.CURVATURE,
        Endpoint.TAKE_RATE,
        Endpoint.ANSWER,
        Endpoint.VALIDATE,
        Endpoint.CERTIFY,
        Endpoint.MEASURE,
    }
)


@dataclass(frozen=True)
class Request:
    """One request: ``number`` is the run among the plan's, ``round`` counts from 1.

    For requests outside the rounds, ``round`` counts how often they came in this job. What is said
    about a masked answer has the question that was answered in ``about``; ``attempt`` counts how
    often that was masked.
    """

    question: Endpoint
    number: int = 0
    _: KW_ONLY
    round: int = 0
    phase: int = 0
    about: Endpoint | None = None
    attempt: int = 0

    def is_before(self, other: "Request") -> bool:
        """Return whether this request comes before another one of the same job.

        A run's model is certified after its last round.
        """
        own, others = (
            (a.number, a.question is Endpoint.CERTIFY, a.round, a.phase) for a in (self, other)
        )
        return own < others

    def __str__(self) -> str:
        if self.question is Endpoint.ANSWER:
            return f"round {self.round}, question {self.phase + 1}, of run {self.number + 1}"
        if self.question is Endpoint.CERTIFY:
            return f"round {self.round} of the proof of run {self.number + 1}"
        return f"'{self.question.value}'"

    @classmethod
    def from_json(cls, entry: Any) -> Self:
        """Read the request of a line."""
        number, round_, phase = (int(entry[name]) for name in ("number", "round", "phase"))
        about = entry.get("about")
        return cls(
            Endpoint(entry["question"]),
            number,
            round=round_,
            phase=phase,
            about=None if about is None else Endpoint(about),
            attempt=int(entry.get("attempt", 0)),
        )

    def as_json(self) -> dict[str, Any]:
        """Return the request as part of a line; what does not apply to it is left out."""
        unused = {name for name in ("about", "attempt") if not getattr(self, name)}
        entries = {name: value for name, value in asdict(self).items() if name not in unused}
        return {
            name: value.value if isinstance(value, Endpoint) else value
            for name, value in entries.items()
        }
