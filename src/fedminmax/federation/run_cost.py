"""The cost of a run: bytes of its messages, which are known, and rounds, which are estimated.

Message sizes depend on the model, the method and the numbers of groups and holders, but not on
rows: one round with a dummy row of each group produces messages of the same sizes as on a network.
The number of rounds is an estimate from benchmarks (benchmarks/rounds_to_target.py).
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from fedminmax.core.examples import Examples
from fedminmax.core.messages import Census, Order, Reveals, RoundKey, Sums
from fedminmax.core.task import Task
from fedminmax.core.validation import NO_LOSSES, LossSums
from fedminmax.core.workspace import Workspace, model_with
from fedminmax.federation.one_round import run_round, with_rate_of
from fedminmax.federation.per_holder import NOTHING, add_up, answer
from fedminmax.methods.method import (
    AnyMethod,
    Holder,
    KeepingMethod,
    StateT,
    SumsMethod,
    VectorMethod,
    lets_holders_keep,
)


@dataclass(frozen=True)
class MessageBytes:
    """Bytes per holder and round: what the server sends, and what the holder returns."""

    down: int
    up: int


@dataclass(frozen=True)
class Rounds:
    """How many rounds a method usually needs before more of them hardly change anything."""

    low: int
    high: int


def message_bytes(
    method: AnyMethod[Any],
    task: Task,
    census: Census,
    row: Tensor,
    *,
    validates: bool = False,
) -> MessageBytes:
    """Return the exact sizes of a round's messages.

    If a round has several requests, their sizes are summed.

    Args:
        method: the method that sends them.
        task: the model and its loss.
        census: rows by holder and group.
        row: any tensor with the shape of one row's features.
        validates: whether holders have set validation rows aside.
    """
    rows = _dummy_rows(task, census, row)
    posted = _MessageRecorder(task, census, rows=rows, validates=validates)
    method = with_rate_of(method, posted)
    start = task.initial_parameters
    kept = NOTHING
    if lets_holders_keep(method):
        kept = method.start_keeping(start).repeat(census.holders, 1)
    first = census.occupied[0]
    run_round(
        posted,
        method,
        method.init(start, census),
        kept=kept,
        key=RoundKey(0, 1),
        participants=[first],
    )
    return MessageBytes(sum(posted.down), sum(posted.up))


def usual_rounds(key: str, *, linear: bool, loss: str) -> Rounds | None:
    """Return how many rounds a method usually needs; None if that was not measured.

    For methods that look ahead they were measured (benchmarks/rounds_to_target.py). Linear models:
    Adult 7 with cross-entropy and with Brier, wide tables 3 to 4. Networks: the paper's MLP 28 to
    44, its CNN 42 on 6,000 images and about 100 on 60,000.

    >>> usual_rounds("fedminmax-fast", linear=True, loss="cross_entropy")
    Rounds(low=3, high=8)
    """
    if key in ("fedminmax-fast", "fedavg-fast", "afl-fast"):
        if not linear:
            return Rounds(28, 100)
        # For least squares the first round's sums determine the whole problem.
        return Rounds(1, 2) if loss == "squared_error" else Rounds(3, 8)
    return Rounds(1_000, 5_000) if key == "fedminmax" else None


def _dummy_rows(task: Task, census: Census, row: Tensor) -> Examples:
    """Return a row of each group."""
    groups = torch.arange(census.groups)
    x = row.expand(census.groups, *row.shape).to(task.initial_parameters)
    y = torch.zeros_like(groups) if census.classes else x.new_zeros(census.groups)
    return Examples(x, y, groups)


@dataclass(eq=False)
class _MessageRecorder:
    """A federation of one holder with dummy rows, which records the sizes of messages."""

    task: Task
    census: Census
    _: KW_ONLY
    rows: Examples
    validates: bool
    down: list[int] = field(default_factory=list)
    up: list[int] = field(default_factory=list)

    @property
    def group_names(self) -> tuple[str, ...]:
        return tuple(map(str, range(self.census.groups)))

    @property
    def initial_parameters(self) -> Tensor:
        return self.task.initial_parameters

    @property
    def parameter_shapes(self) -> tuple[tuple[int, ...], ...]:
        return self.task.parameter_shapes

    @property
    def validation_rows(self) -> Tensor:
        return NO_LOSSES.count

    @property
    def reveals(self) -> Reveals:
        return Reveals.OWN_VECTOR

    @property
    def safe_learning_rate(self) -> float:
        return 1.0

    def model(self, parameters: Tensor) -> nn.Module:
        return model_with(self.task, parameters)

    def ask(self, method: SumsMethod[StateT], order: Order, participants: Sequence[int]) -> Sums:
        own = self._holder(participants, NOTHING)
        return add_up([self._noted(order, answer(method, order, own, Workspace(self.task)))])

    def ask_each(
        self, method: VectorMethod[StateT], order: Order, participants: Sequence[int]
    ) -> tuple[Sums, ...]:
        own = self._holder(participants, NOTHING)
        return (self._noted(order, method.local(order, own, Workspace(self.task))),)

    def validate(self, order: Order, participants: Sequence[int]) -> LossSums:  # noqa: ARG002
        return NO_LOSSES

    def ask_keeping(
        self,
        method: KeepingMethod[StateT],
        order: Order,
        participants: Sequence[int],
        kept: Tensor,
    ) -> tuple[Sums, Tensor]:
        own = self._holder(participants, kept[participants[0]])
        reply, _ = method.local_and_keep(order, own, Workspace(self.task))
        return self._noted(order, reply), kept

    def _holder(self, participants: Sequence[int], kept: Tensor) -> Holder:
        holders, groups = self.census.holders, self.census.groups
        return Holder(
            participants[0],
            self.rows,
            holders=holders,
            groups=groups,
            rows_per_chunk=groups,
            kept=kept,
        )

    def _noted(self, order: Order, reply: Sums) -> Sums:
        # Imported here, because other advice does not need this package.
        from fedminmax.federation.wire.messages import order_to_bytes, sums_to_bytes

        self.down.append(len(order_to_bytes(order)))
        self.up.append(len(sums_to_bytes(self._as_sent(order, reply), 0.0)))
        return reply

    def _as_sent(self, order: Order, reply: Sums) -> Sums:
        """Return a reply of the same size as the one that is sent."""
        if self.validates and order.phase == 0:
            nothing = torch.zeros(self.census.groups, dtype=torch.float64)
            reply = replace(reply, validation=LossSums(nothing, nothing, nothing.long()))
        return reply
