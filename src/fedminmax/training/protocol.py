"""What the round loop needs from a federation, wherever its sites are, and what defines a run.

A run can be resumed only with the same rows, groups and model, of which ``RunIdentity`` has
digests. The values of rows are compared up to rounding, by a few numbers of each group, where the
server sees rows: a digest of the values would also differ in their last bits, as on another
machine, and with the rows' order. The initial model is not part of it: it is not needed after the
first round.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Protocol

import torch
from torch import Tensor, nn

from fedminmax.core.errors import InputError
from fedminmax.core.examples import Examples
from fedminmax.core.messages import Census, Order, Reveals, Sums
from fedminmax.core.validation import LossSums
from fedminmax.methods.method import AnyMethod, StateT
from fedminmax.training.replies import NOTHING

ROWS_AT_A_TIME = 4096
# Relative to deviations: one of 100,000 rows with another label changes a mean by more.
SAME = 1e-6


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

    ``values`` are numbers, or empty (see ``value_marks``).
    """

    groups: str
    model: str
    rows: str
    small_groups: str
    values: str


MISMATCHES = {
    "groups": "the groups had other names",
    "model": "the model's parameters had other shapes, another precision or another ridge, or "
    "other effects were monotone",
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
    shape: tuple[object, ...] = (
        federation.parameter_shapes,
        federation.initial_parameters.dtype,
    )
    if linear and linear.has_cone:
        # The last digits may depend on the number of threads.
        shape = (*shape, (linear.cone.round(decimals=6) + 0.0).tolist())
    return (*shape, linear.ridge) if linear and linear.ridge else shape


def _digest(content: object) -> str:
    return hashlib.sha256(repr(content).encode()).hexdigest()


def value_marks(sites: list[Examples], groups: int) -> Tensor:
    """Return [A, 5]: means and deviations of features and targets, and their correlation.

    Of a row's features, each divided by its deviation over all rows, one random combination is
    taken; likewise of targets. Means are in deviations, deviations as logarithms.
    """
    parts = [own for own in sites if len(own)]
    group = torch.cat([own.group for own in parts]).cpu()
    rows = torch.bincount(group, minlength=groups).double()

    def by_group(values: Tensor) -> Tensor:
        return torch.bincount(group, weights=values, minlength=groups) / rows

    columns, centred = [], []
    for values in ([own.x for own in parts], [own.y for own in parts]):
        number = _combined(values)
        mean = by_group(number)
        rest = number - mean[group]
        deviation = by_group(rest.square()).sqrt()
        # Rounding of equal numbers is no deviation.
        deviation = torch.where(deviation > 1e-12 * mean.abs(), deviation, 1.0)
        columns += [mean / deviation, deviation.log()]
        centred.append(rest / deviation[group])
    marks = torch.stack([*columns, by_group(centred[0] * centred[1])], dim=1)
    return marks.nan_to_num()


def are_same(before: str, now: str) -> bool:
    """Compare marks that were written as text; those of a server that sees no rows are empty.

    >>> are_same("0.5 1", "0.5000000000001 1"), are_same("0.5", "0.6"), are_same("", "0.5")
    (True, False, True)
    """
    pairs = list(zip(before.split(), now.split(), strict=False))
    return all(
        math.isclose(float(old), float(new), rel_tol=SAME, abs_tol=SAME) for old, new in pairs
    )


def as_text(marks: Tensor | None) -> str:
    """Return the marks as text, without loss."""
    return "" if marks is None else " ".join(map(repr, marks.flatten().tolist()))


def _combined(parts: list[Tensor]) -> Tensor:
    """Return one random combination of the numbers of each row, in float64."""
    chunks = [
        chunk.flatten(1) if chunk.dim() > 1 else chunk.unsqueeze(1)
        for part in parts
        for chunk in torch.split(part, ROWS_AT_A_TIME)
    ]
    count = sum(map(len, chunks))
    none = torch.zeros(chunks[0].shape[1], dtype=torch.float64, device=chunks[0].device)
    mean = sum((chunk.double().sum(dim=0) for chunk in chunks), none) / count
    squares = sum(((chunk.double() - mean).square().sum(dim=0) for chunk in chunks), none) / count
    deviation = torch.where(squares > 0, squares.sqrt(), 1.0)
    generator = torch.Generator().manual_seed(0)
    factors = 1.0 + torch.rand(len(deviation), generator=generator, dtype=torch.float64)
    weights = factors.to(deviation.device) / deviation
    return torch.cat([chunk.double() @ weights for chunk in chunks]).cpu()
