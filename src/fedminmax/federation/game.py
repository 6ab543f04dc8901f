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
    """One digest for each part of what must not change; no other game goes on from a progress.

    ``small_groups`` is empty where the adversary may choose any group, as in runs of earlier
    versions.
    """

    groups: str
    model: str
    rows: str
    small_groups: str


WORDS = {
    "groups": "the groups had other names",
    "model": "the model's parameters had other shapes, another precision or another ridge",
    "rows": "the holders had other numbers of rows by group",
    "small_groups": "other groups were too small for the adversary to choose",
}


def game_of(federation: Federation) -> Game:
    """Return what a run in this federation is about."""
    census = federation.census
    set_aside = federation.validation_rows.tolist()
    return Game(
        groups=_digest(federation.group_names),
        model=_digest(_model_of(federation)),
        rows=_digest((census.counts.tolist(), census.classes, *([set_aside] if set_aside else []))),
        small_groups="" if bool(census.playable.all()) else _digest(census.playable.tolist()),
    )


def check_same_game(before: Game, now: Game, refusal: str) -> None:
    """Refuse to go on with other groups, another model or other counts of rows."""
    for field in fields(Game):
        if getattr(before, field.name) != getattr(now, field.name):
            raise InputError(
                f"{refusal}: {WORDS[field.name]}; give the data, the model and the minimum of "
                "rows of a group that the run began with, or start anew"
            )


def _model_of(federation: Federation) -> tuple[object, ...]:
    linear = federation.census.linear
    shape = (federation.parameter_shapes, federation.initial_parameters.dtype)
    return (*shape, linear.ridge) if linear and linear.ridge else shape


def _digest(content: object) -> str:
    return hashlib.sha256(repr(content).encode()).hexdigest()
