"""All methods that the contract holds for: a new one gets a row here, and nothing else."""

import pytest

from fedminmax.core.parity import Parity
from fedminmax.methods.afl import AFL, AFLStart, GradientEstimator, StochasticAFL
from fedminmax.methods.ap_star import APStar
from fedminmax.methods.ditto import Ditto
from fedminmax.methods.drfa import DRFA, GroupDRFA
from fedminmax.methods.fairfed import FairFed
from fedminmax.methods.fcfl import FCFL
from fedminmax.methods.fed_srcvar import FedSRCVaR
from fedminmax.methods.fedavg import FedAvg
from fedminmax.methods.fedfb import FedFB
from fedminmax.methods.fedgft import FedGFT
from fedminmax.methods.fedmgda import FedMGDA
from fedminmax.methods.fedminmax import FedMinMax, FedMinMaxLocal
from fedminmax.methods.group_scaff_pd import GroupSCAFFPD
from fedminmax.methods.logofair import LoGoFair
from fedminmax.methods.look_ahead import AFLFast, FedAvgFast, FedMinMaxFast
from fedminmax.methods.minimax_fair import MinimaxFair, RelaxedMinimaxFair
from fedminmax.methods.oracle_minimax import OracleMinimax
from fedminmax.methods.qfedavg import QFedAvg
from fedminmax.methods.term import TERM, GroupTERM
from fedminmax.testing import Case

MINMAX = FedMinMax(learning_rate=0.3, adversary_rate=0.4)


ONE_STEP = [
    Case("FedMinMax", lambda _: MINMAX),
    Case(
        "FedMinMax-min_weight",
        lambda _: FedMinMax(learning_rate=0.3, adversary_rate=0.4, min_weight=0.1),
    ),
    Case(
        "AFL",
        lambda _: AFL(learning_rate=0.3, adversary_rate=0.4),
    ),
    Case(
        "AFL-uniform",
        lambda _: AFL(learning_rate=0.3, adversary_rate=0.4, start=AFLStart.UNIFORM),
    ),
    Case(
        "AFL-keep_share",
        lambda _: AFL(learning_rate=0.3, adversary_rate=0.4, keep_share=0.3),
    ),
    Case(
        "GroupTERM",
        lambda _: GroupTERM(2.0, learning_rate=0.3),
    ),
    Case(
        "APStar",
        lambda _: APStar(learning_rate=0.3, fit_rounds=1),
    ),
    Case(
        "APStar-keep_share",
        lambda _: APStar(learning_rate=0.3, fit_rounds=1, keep_share=0.3),
    ),
    Case(
        "MinimaxFair-keep_share",
        lambda _: MinimaxFair(learning_rate=0.3, fit_rounds=3, keep_share=0.3),
    ),
    Case(
        "MinimaxFair",
        lambda _: MinimaxFair(learning_rate=0.3, fit_rounds=3),
    ),
    Case(
        "RelaxedMinimaxFair",
        lambda _: RelaxedMinimaxFair(0.3, learning_rate=0.3, fit_rounds=3),
    ),
    Case(
        "OracleMinimax",
        lambda _: OracleMinimax(10, learning_rate=0.3, fit_rounds=3),
    ),
]
FAST = [
    Case(
        "FedMinMaxFast",
        lambda _: FedMinMaxFast(optimality_gap=0.0),
        tolerance=1e-7,
    ),
    Case(
        "FedMinMaxFast-min_weight",
        lambda _: FedMinMaxFast(min_weight=0.1, optimality_gap=0.0),
        tolerance=1e-7,
    ),
    Case(
        "FedAvgFast",
        lambda _: FedAvgFast(optimality_gap=0.0),
        tolerance=1e-7,
    ),
    Case(
        "AFLFast",
        lambda _: AFLFast(),
        tolerance=1e-7,
    ),
    Case(
        "FedSRCVaR",
        lambda _: FedSRCVaR(0.4, keep_share=0.2, learning_rate=0.3, optimality_gap=0.0),
        tolerance=1e-7,
    ),
]
LOCAL = [
    Case(
        "FedAvg",
        lambda batch: FedAvg(learning_rate=0.3, epochs=3, batch_size=batch),
    ),
    Case(
        "FedFB-demographic",
        lambda batch: FedFB(0.3, 0.1, parity=Parity.DEMOGRAPHIC, epochs=3, batch_size=batch),
    ),
    Case(
        "FedFB-opportunity",
        lambda batch: FedFB(0.3, 0.1, parity=Parity.OPPORTUNITY, epochs=3, batch_size=batch),
    ),
    Case(
        "FairFed-demographic",
        lambda batch: FairFed(
            0.2, Parity.DEMOGRAPHIC, learning_rate=0.3, epochs=3, batch_size=batch
        ),
    ),
    Case(
        "FairFed-opportunity",
        lambda batch: FairFed(
            0.2, Parity.OPPORTUNITY, learning_rate=0.3, epochs=3, batch_size=batch
        ),
    ),
    Case(
        "FedGFT-demographic",
        lambda batch: FedGFT(
            0.5, Parity.DEMOGRAPHIC, learning_rate=0.3, epochs=3, batch_size=batch
        ),
    ),
    Case(
        "FedGFT-opportunity",
        lambda batch: FedGFT(
            0.5, Parity.OPPORTUNITY, learning_rate=0.3, epochs=3, batch_size=batch
        ),
    ),
    Case(
        "QFedAvg-0.2",
        lambda batch: QFedAvg(0.2, learning_rate=0.3, epochs=3, batch_size=batch),
    ),
    Case(
        "QFedAvg-5",
        lambda batch: QFedAvg(5.0, learning_rate=0.3, epochs=3, batch_size=batch),
    ),
    Case(
        "TERM",
        lambda batch: TERM(2.0, learning_rate=0.3, epochs=3, batch_size=batch),
    ),
    Case(
        "TERM-groups",
        lambda batch: TERM(2.0, 5.0, learning_rate=0.3, epochs=3, batch_size=batch),
    ),
    Case(
        "FedMGDA",
        lambda batch: FedMGDA(server_rate=0.3, learning_rate=0.3, epochs=3, batch_size=batch),
    ),
    Case(
        "FedMGDA-free",
        lambda batch: FedMGDA(1.0, 0.3, learning_rate=0.3, epochs=3, batch_size=batch),
    ),
    Case(
        "FCFL",
        lambda batch: FCFL(learning_rate=0.3, batch_size=batch),
    ),
    Case(
        "FCFL-opportunity",
        lambda batch: FCFL(
            0.3, 0.2, parity=Parity.OPPORTUNITY, stage_one_rounds=4, batch_size=batch
        ),
    ),
    Case(
        "FedMinMaxLocal",
        lambda batch: FedMinMaxLocal(0.3, 0.4, epochs=3, batch_size=batch),
    ),
    Case(
        "Ditto",
        lambda batch: Ditto(0.5, learning_rate=0.3, personal_rate=0.2, epochs=3, batch_size=batch),
    ),
    Case(
        "LoGoFair",
        lambda batch: LoGoFair(0.05, 0.1, learning_rate=0.3, epochs=3, batch_size=batch),
    ),
    Case(
        "LoGoFair-opportunity",
        lambda batch: LoGoFair(
            parity=Parity.OPPORTUNITY, learning_rate=0.3, epochs=3, batch_size=batch
        ),
    ),
    Case(
        "GroupSCAFFPD",
        lambda batch: GroupSCAFFPD(0.3, 0.4, epochs=3, batch_size=batch),
    ),
    Case(
        "GroupSCAFFPD-min_weight",
        lambda batch: GroupSCAFFPD(
            0.3, 0.4, extrapolation=0.5, min_weight=0.1, epochs=3, batch_size=batch
        ),
    ),
    Case(
        "StochasticAFL-domains",
        lambda batch: StochasticAFL(0.3, 0.4, batch_size=batch, chi_squared=0.01),
        draws_lots=True,
    ),
    Case(
        "StochasticAFL-weighted",
        lambda batch: StochasticAFL(
            0.3, 0.4, estimator=GradientEstimator.WEIGHTED, draws=3, batch_size=batch
        ),
        draws_lots=True,
    ),
    Case(
        "DRFA",
        lambda batch: DRFA(0.3, 0.2, steps=1 if batch is None else 3, batch_size=batch),
    ),
    Case(
        "DRFA-drawn",
        lambda batch: DRFA(0.3, 0.2, steps=3, batch_size=batch, sites_drawn=2),
        draws_lots=True,
    ),
    Case(
        "GroupDRFA",
        lambda batch: GroupDRFA(0.3, 0.2, steps=1 if batch is None else 3, batch_size=batch),
    ),
]


EVERY = ONE_STEP + FAST + LOCAL


def for_each(cases: list[Case]) -> pytest.MarkDecorator:
    """Run a test once per case, under the case's name."""
    return pytest.mark.parametrize("case", cases, ids=[case.label for case in cases])


every_method = for_each(EVERY)
