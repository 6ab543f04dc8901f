"""What the round loop needs from a federation, wherever its sites are, and what defines a run.

A run can be resumed only with the same rows, groups and model, of which ``RunIdentity`` has
digests. The values of rows are compared up to rounding, by a few numbers of each group, where the
server sees rows. The initial model is not part of it: it is not needed after the first round.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Protocol

from torch import Tensor, nn

from fedminmax.core.errors import InputError
from fedminmax.core.messages import Census, Order, Reveals, Sums
from fedminmax.core.validation import LossSums
from fedminmax.methods.method import AnyMethod, StateT
from fedminmax.training.per_site import NOTHING
from fedminmax.training.value_marks import are_same, as_text


@dataclass(frozen=True, eq=False)
class Replies:
    """What a request brought back, in the sites' order.

    ``each`` has the single replies if the method needs them, and ``kept`` the sites' private state
    afterwards (in a simulation; on a real network it stays with them, and this is as it was).
    """

    total: Sums
    each: tuple[Sums, ...] = ()
    kept: Tensor = NOTHING


class Federation(Protocol):
    """Sites that can be counted and receive orders."""

    @property
    def census(self) -> Census:
        """Rows by site and group."""
        ...

    @property
    def group_names(self) -> tuple[str, ...]:
        """The groups' names, in the order of their numbers."""
        ...

    @property
    def initial_parameters(self) -> Tensor:
        """theta^0."""
        ...

    @property
    def parameter_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the parameters that are concatenated in theta^0."""
        ...

    @property
    def validation_rows(self) -> Tensor:
        """Validation rows of each group over all sites; empty if there are none."""
        ...

    @property
    def reveals(self) -> Reveals:
        """The most detailed information that the server can see about one site."""
        ...

    @property
    def safe_learning_rate(self) -> float:
        """The learning rate of methods that have none: see ``core.bounds``."""
        ...

    def model(self, parameters: Tensor) -> nn.Module:
        """Return a copy of the model with these parameters, ready to predict."""
        ...

    def ask(
        self,
        method: AnyMethod[StateT],
        order: Order,
        participants: Sequence[int],
        kept: Tensor = NOTHING,
    ) -> Replies:
        """Send the order to these sites; ``kept`` is all sites' private state, one row each.

        Replies to a round's first request include the losses on validation rows, if there are any.
        """
        ...

    def validate(self, order: Order, participants: Sequence[int]) -> LossSums:
        """Request only the losses of the order's model on these sites' validation rows."""
        ...


@dataclass(frozen=True)
class RunIdentity:
    """One digest for each part that must not change while a run is resumed.

    ``values`` are numbers, or empty (see ``training.value_marks``).
    """

    groups: str
    model: str
    rows: str
    small_groups: str
    values: str


MISMATCHES = {
    "groups": "the groups had other names",
    "model": "the model's parameters had other shapes, another precision or another ridge",
    "rows": "the sites had other numbers of rows by group",
    "small_groups": "other groups were too small for the adversary to choose",
    "values": "the rows had other values",
}


def identity_of(federation: Federation) -> RunIdentity:
    """Return what identifies a run in this federation."""
    census = federation.census
    return RunIdentity(
        groups=_digest(federation.group_names),
        model=_digest(_model_of(federation)),
        rows=_digest((census.counts.tolist(), census.classes, federation.validation_rows.tolist())),
        small_groups=_digest(census.included.tolist()),
        values=as_text(census.value_marks),
    )


def check_same_run(before: RunIdentity, now: RunIdentity, refusal: str) -> None:
    """Refuse to resume with other groups, another model or other row counts."""
    for field in fields(RunIdentity):
        old, new = getattr(before, field.name), getattr(now, field.name)
        if not (are_same(old, new) if field.name == "values" else old == new):
            raise InputError(
                f"{refusal}: {MISMATCHES[field.name]}; give the data, the model and the minimum of "
                "rows of a group that the run began with, or start a new run"
            )


def _model_of(federation: Federation) -> tuple[object, ...]:
    linear = federation.census.linear
    shape = (federation.parameter_shapes, federation.initial_parameters.dtype)
    return (*shape, linear.ridge) if linear and linear.ridge else shape


def _digest(content: object) -> str:
    return hashlib.sha256(repr(content).encode()).hexdigest()
