"""All methods that the contract holds for: a new method is added here and nowhere else."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pytest

from fedminmax.core.messages import Order, Sums
from fedminmax.core.parity import Parity
from fedminmax.federation.inprocess import InProcessFederation
from fedminmax.federation.per_holder import add_up
from fedminmax.federation.train import start_of
from fedminmax.methods.afl import AFL, AFLStart
from fedminmax.methods.afl_fast import AFLFast
from fedminmax.methods.ap_star import APStar
from fedminmax.methods.ditto import Ditto
from fedminmax.methods.drfa import DRFA
from fedminmax.methods.fairfed import FairFed
from fedminmax.methods.fcfl import FCFL
from fedminmax.methods.fedavg import FedAvg
from fedminmax.methods.fedavg_fast import FedAvgFast
from fedminmax.methods.fedfb import FedFB
from fedminmax.methods.fedgft import FedGFT
from fedminmax.methods.fedmgda import FedMGDA
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.methods.fedminmax_fast import FedMinMaxFast
from fedminmax.methods.fedminmax_local import FedMinMaxLocal
from fedminmax.methods.group_drfa import GroupDRFA
from fedminmax.methods.group_scaff_pd import GroupSCAFFPD
from fedminmax.methods.group_term import GroupTERM
from fedminmax.methods.method import AnyMethod, lets_holders_keep, needs_each_reply
from fedminmax.methods.minimax_fair import MinimaxFair
from fedminmax.methods.oracle_minimax import OracleMinimax
from fedminmax.methods.qfedavg import QFedAvg
from fedminmax.methods.relaxed_minimax_fair import RelaxedMinimaxFair
from fedminmax.methods.stochastic_afl import GradientEstimator, StochasticAFL
from fedminmax.methods.term import TERM

Method = AnyMethod[Any]
MINMAX = FedMinMax(learning_rate=0.3, adversary_rate=0.4)


class Over(Enum):
    """What the adversary's weights are over."""

    GROUPS = "groups"
    HOLDERS = "holders"
    HOLDERS_AHEAD = "holders, for the next model: an absent one does not keep its weight"
    NOTHING = "nothing"
    ELSE = "something else, or not on the simplex"


@dataclass(frozen=True)
class Case:
    """A method, made with a batch size (which one-step methods do not have).

    A method that draws lots at the server is random even with full batches and all holders. One
    for linear models alone has no case with networks. ``tolerance`` is how far rounding alone moves
    the model: near an optimum the risks are flat, and what looks ahead gets there.
    """

    label: str
    make: Callable[[int | None], Method]
    weights_over: Over
    has_batches: bool
    draws_lots: bool = False
    tolerance: float = 1e-12

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
    Case(
        "APStar",
        lambda _: APStar(learning_rate=0.3, fit_rounds=1),
        Over.GROUPS,
        has_batches=False,
    ),
    Case(
        "MinimaxFair",
        lambda _: MinimaxFair(learning_rate=0.3, fit_rounds=3),
        Over.GROUPS,
        has_batches=False,
    ),
    Case(
        "RelaxedMinimaxFair",
        lambda _: RelaxedMinimaxFair(0.3, learning_rate=0.3, fit_rounds=3),
        Over.ELSE,
        has_batches=False,
    ),
    Case(
        "OracleMinimax",
        lambda _: OracleMinimax(10, learning_rate=0.3, fit_rounds=3),
        Over.GROUPS,
        has_batches=False,
    ),
]
FAST = [
    # Its weights are those of the next model: an absent group keeps its last word, not its weight.
    Case(
        "FedMinMaxFast",
        lambda _: FedMinMaxFast(gap=0.0),
        Over.ELSE,
        has_batches=False,
        tolerance=1e-7,
    ),
    Case(
        "FedMinMaxFast-epsilon",
        lambda _: FedMinMaxFast(epsilon=0.1, gap=0.0),
        Over.ELSE,
        has_batches=False,
        tolerance=1e-7,
    ),
    Case(
        "FedAvgFast",
        lambda _: FedAvgFast(gap=0.0),
        Over.NOTHING,
        has_batches=False,
        tolerance=1e-7,
    ),
    Case(
        "AFLFast",
        lambda _: AFLFast(),
        Over.HOLDERS_AHEAD,
        has_batches=False,
        tolerance=1e-7,
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
        "FedFB-demographic",
        lambda batch: FedFB(0.3, 0.1, Parity.DEMOGRAPHIC, epochs=3, batch_size=batch),
        Over.ELSE,
        has_batches=True,
    ),
    Case(
        "FedFB-opportunity",
        lambda batch: FedFB(0.3, 0.1, Parity.OPPORTUNITY, epochs=3, batch_size=batch),
        Over.ELSE,
        has_batches=True,
    ),
    Case(
        "FairFed-demographic",
        lambda batch: FairFed(
            0.2, Parity.DEMOGRAPHIC, learning_rate=0.3, epochs=3, batch_size=batch
        ),
        Over.HOLDERS,
        has_batches=True,
    ),
    Case(
        "FairFed-opportunity",
        lambda batch: FairFed(
            0.2, Parity.OPPORTUNITY, learning_rate=0.3, epochs=3, batch_size=batch
        ),
        Over.HOLDERS,
        has_batches=True,
    ),
    Case(
        "FedGFT-demographic",
        lambda batch: FedGFT(
            0.5, Parity.DEMOGRAPHIC, learning_rate=0.3, epochs=3, batch_size=batch
        ),
        Over.NOTHING,
        has_batches=True,
    ),
    Case(
        "FedGFT-opportunity",
        lambda batch: FedGFT(
            0.5, Parity.OPPORTUNITY, learning_rate=0.3, epochs=3, batch_size=batch
        ),
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
        "FedMGDA",
        lambda batch: FedMGDA(server_rate=0.3, learning_rate=0.3, epochs=3, batch_size=batch),
        Over.NOTHING,
        has_batches=True,
    ),
    Case(
        "FedMGDA-free",
        lambda batch: FedMGDA(1.0, 0.3, learning_rate=0.3, epochs=3, batch_size=batch),
        Over.NOTHING,
        has_batches=True,
    ),
    Case(
        "FCFL",
        lambda batch: FCFL(learning_rate=0.3, batch_size=batch),
        Over.NOTHING,
        has_batches=True,
    ),
    Case(
        "FCFL-opportunity",
        lambda batch: FCFL(0.3, 0.2, Parity.OPPORTUNITY, stage_one_rounds=4, batch_size=batch),
        Over.NOTHING,
        has_batches=True,
    ),
    Case(
        "FedMinMaxLocal",
        lambda batch: FedMinMaxLocal(0.3, 0.4, epochs=3, batch_size=batch),
        Over.GROUPS,
        has_batches=True,
    ),
    Case(
        "Ditto",
        lambda batch: Ditto(0.5, learning_rate=0.3, personal_rate=0.2, epochs=3, batch_size=batch),
        Over.NOTHING,
        has_batches=True,
    ),
    Case(
        "GroupSCAFFPD",
        lambda batch: GroupSCAFFPD(0.3, 0.4, epochs=3, batch_size=batch),
        Over.GROUPS,
        has_batches=True,
    ),
    Case(
        "GroupSCAFFPD-epsilon",
        lambda batch: GroupSCAFFPD(0.3, 0.4, 0.5, 0.1, epochs=3, batch_size=batch),
        Over.GROUPS,
        has_batches=True,
    ),
    Case(
        "StochasticAFL-domains",
        lambda batch: StochasticAFL(0.3, 0.4, batch_size=batch, chi_squared=0.01),
        Over.HOLDERS,
        has_batches=True,
        draws_lots=True,
    ),
    Case(
        "StochasticAFL-weighted",
        lambda batch: StochasticAFL(
            0.3, 0.4, GradientEstimator.WEIGHTED, draws=3, batch_size=batch
        ),
        Over.HOLDERS,
        has_batches=True,
        draws_lots=True,
    ),
    Case(
        "DRFA",
        lambda batch: DRFA(0.3, 0.2, steps=1 if batch is None else 3, batch_size=batch),
        Over.HOLDERS,
        has_batches=True,
    ),
    Case(
        "DRFA-drawn",
        lambda batch: DRFA(0.3, 0.2, steps=3, batch_size=batch, holders_drawn=2),
        Over.HOLDERS,
        has_batches=True,
        draws_lots=True,
    ),
    Case(
        "GroupDRFA",
        lambda batch: GroupDRFA(0.3, 0.2, steps=1 if batch is None else 3, batch_size=batch),
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
    if needs_each_reply(method):
        return add_up(federation.ask_each(method, order, participants))
    if lets_holders_keep(method):
        kept = start_of(federation, method).kept
        return federation.ask_keeping(method, order, participants, kept)[0]
    return federation.ask(method, order, participants)


EVERY = ONE_STEP + FAST + LOCAL
every_method = for_each(EVERY)
every_one_step_method = for_each(ONE_STEP)
every_fast_method = for_each(FAST)
every_method_with_batches = for_each([case for case in EVERY if case.has_batches])
every_method_without_lots = for_each([case for case in EVERY if not case.draws_lots])
