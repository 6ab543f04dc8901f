"""How the server reaches its sites, whatever carries the messages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, eq=False)
class Answers:
    """What came back: messages by site, reasons of those who sent none, and who was too late."""

    messages: Mapping[str, object]
    failures: Mapping[str, str]
    late: frozenset[str] = frozenset()


class Transport(Protocol):
    """Calls one of a site's questions (prepare, encode, answer) at several sites at once."""

    def __call__(self, sites: Sequence[str], question: str, words: Mapping[str, object]) -> Answers:
        """Ask these sites and wait for all of them, each at most for the agreed time."""
        ...
