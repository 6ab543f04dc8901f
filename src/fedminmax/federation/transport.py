"""How the server reaches its sites, whatever carries the messages."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

# So long may a site take to say that it is there.
SECONDS_TO_SAY_SO = 5.0
NO_LIMITS: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class Answer:
    """What came of one site: a message, or why there is none, and whether it was too late."""

    site: str
    message: object = None
    failure: str | None = None
    late: bool = False


@dataclass(frozen=True, eq=False)
class Answers:
    """What came of all: messages by site, and the reasons of those who sent none."""

    messages: Mapping[str, object]
    failures: Mapping[str, str]


class Transport(Protocol):
    """Calls one of a site's questions (present, prepare, answer, ...) at several sites at once."""

    def __call__(
        self,
        sites: Sequence[str],
        question: str,
        words: Mapping[str, object],
        seconds: Mapping[str, float] = NO_LIMITS,
    ) -> Iterator[Answer]:
        """Ask these sites and yield each one's answer as it comes.

        A site may take its own ``seconds``, or the agreed time if it has none; one that is no
        longer connected is not waited for.
        """
        ...


def gathered(answers: Iterable[Answer]) -> Answers:
    """Wait for all answers."""
    messages: dict[str, object] = {}
    failures: dict[str, str] = {}
    for answer in answers:
        if answer.failure is None:
            messages[answer.site] = answer.message
        else:
            failures[answer.site] = answer.failure
    return Answers(messages, failures)
