"""What a run is about, in digests: rows, groups and model, which must be the same to go on.

The values of rows are not part of it: they may differ in their last bits on another machine. Nor
is the model's start, which nothing needs after the first round.
"""

import hashlib
from dataclasses import dataclass, fields

from fedminmax.core.errors import InputError
from fedminmax.federation.federation import Federation


@dataclass(frozen=True)
class Game:
    """One digest for each part of what must not change; no other game goes on from a progress."""

    groups: str
    model: str
    rows: str


WORDS = {
    "groups": "the groups had other names",
    "model": "the model's parameters had other shapes or another precision",
    "rows": "the holders had other numbers of rows by group",
}


def game_of(federation: Federation) -> Game:
    """Return what a run in this federation is about."""
    census = federation.census
    return Game(
        groups=_digest(federation.group_names),
        model=_digest((federation.parameter_shapes, federation.initial_parameters.dtype)),
        rows=_digest((census.counts.tolist(), census.classes)),
    )


def check_same_game(before: Game, now: Game, refusal: str) -> None:
    """Refuse to go on with other groups, another model or other counts of rows."""
    for field in fields(Game):
        if getattr(before, field.name) != getattr(now, field.name):
            raise InputError(
                f"{refusal}: {WORDS[field.name]}; give the data and the model that the run "
                "began with, or start anew"
            )


def _digest(content: object) -> str:
    return hashlib.sha256(repr(content).encode()).hexdigest()
