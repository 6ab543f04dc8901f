"""All methods that the contract holds for: a new method is added here and nowhere else."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pytest

from fedminmax.core.messages import Order, Sums
from fedminmax.federation.inprocess import InProcessFederation
from fedminmax.federation.per_holder import add_up
from fedminmax.federation.train import start_of
from fedminmax.methods.afl import AFL, AFLStart
from fedminmax.methods.fedavg import FedAvg
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.methods.fedminmax_local import FedMinMaxLocal
from fedminmax.methods.group_term import GroupTERM
from fedminmax.methods.method import AnyMethod, KeepingMethod, VectorMethod
from fedminmax.methods.qfedavg import QFedAvg
from fedminmax.methods.term import TERM

Method = AnyMethod[Any]
MINMAX = FedMinMax(learning_rate=0.3, adversary_rate=0.4)


class Over(Enum):
    """What the adversary's weights are over."""

    GROUPS = "groups"
    HOLDERS = "holders"
    NOTHING = "nothing"
    ELSE = "something else, or not on the simplex"


@dataclass(frozen=True)
class Case:
    """A method, made with a batch size (which one-step methods do not have).

    A method that draws lots at the server is random even with full batches and all holders.
    """

    label: str
    make: Callable[[int | None], Method]
    weights_over: Over
    has_batches: bool
    draws_lots: bool = False

    @property
    def full_batch(self) -> Method:
        """The method without any randomness of its own."""
        return self.make(None)

    @property
    def mini_batch(self) -> Method:
        """The method with small batches, if it has batches at all."""
        return self.make(2)


ONE_STEP = [
    Case("FedMinMax", lambda _: MINMAX, Over.GROUPS, has_batches=False),
    Case(
        "FedMinMax-epsilon",
        lambda _: FedMinMax(learning_rate=0.3, adversary_rate=0.4, epsilon=0.1),
        Over.GROUPS,
        has_batches=False,
    ),
    Case(
        "AFL",
        lambda _: AFL(learning_rate=0.3, adversary_rate=0.4),
        Over.HOLDERS,
        has_batches=False,
    ),
    Case(
        "AFL-uniform",
        lambda _: AFL(learning_rate=0.3, adversary_rate=0.4, start=AFLStart.UNIFORM),
        Over.HOLDERS,
        has_batches=False,
    ),
    Case(
        "GroupTERM",
        lambda _: GroupTERM(2.0, learning_rate=0.3),
        Over.GROUPS,
        has_batches=False,
    ),
]
LOCAL = [
    Case(
        "FedAvg",
        lambda batch: FedAvg(learning_rate=0.3, epochs=3, batch_size=batch),
        Over.NOTHING,
        has_batches=True,
    ),
    Case(
        "QFedAvg-0.2",
        lambda batch: QFedAvg(0.2, learning_rate=0.3, epochs=3, batch_size=batch),
        Over.NOTHING,
        has_batches=True,
    ),
    Case(
        "QFedAvg-5",
        lambda batch: QFedAvg(5.0, learning_rate=0.3, epochs=3, batch_size=batch),
        Over.NOTHING,
        has_batches=True,
    ),
    Case(
        "TERM",
        lambda batch: TERM(2.0, learning_rate=0.3, epochs=3, batch_size=batch),
        Over.NOTHING,
        has_batches=True,
    ),
    Case(
        "TERM-groups",
        lambda batch: TERM(2.0, 5.0, learning_rate=0.3, epochs=3, batch_size=batch),
        Over.NOTHING,
        has_batches=True,
    ),
    Case(
        "FedMinMaxLocal",
        lambda batch: FedMinMaxLocal(MINMAX, epochs=3, batch_size=batch),
        Over.GROUPS,
        has_batches=True,
    ),
]


def for_each(cases: list[Case]) -> pytest.MarkDecorator:
    """Run a test once per case, under the case's name."""
    return pytest.mark.parametrize("case", cases, ids=[case.label for case in cases])


def ask(
    federation: InProcessFederation, method: Method, order: Order, participants: list[int]
) -> Sums:
    """Ask a method's first question, whatever its kind, and add up the replies."""
    if isinstance(method, VectorMethod):
        return add_up(federation.ask_each(method, order, participants))
    if isinstance(method, KeepingMethod):
        kept = start_of(federation, method).kept
        return federation.ask_keeping(method, order, participants, kept)[0]
    return federation.ask(method, order, participants)


EVERY = ONE_STEP + LOCAL
every_method = for_each(EVERY)
every_one_step_method = for_each(ONE_STEP)
every_method_with_batches = for_each([case for case in EVERY if case.has_batches])
every_method_without_lots = for_each([case for case in EVERY if not case.draws_lots])
