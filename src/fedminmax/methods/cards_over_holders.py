"""Cards of the methods that look after holders, and of plain averaging."""

from fedminmax.methods.afl import AFL
from fedminmax.methods.afl_fast import AFLFast
from fedminmax.methods.card import MethodCard, Pace
from fedminmax.methods.ditto import Ditto
from fedminmax.methods.drfa import DRFA
from fedminmax.methods.fedavg import FedAvg
from fedminmax.methods.fedavg_fast import FedAvgFast
from fedminmax.methods.fedmgda import FedMGDA
from fedminmax.methods.option_sources import (
    ADVERSARY,
    AUTHORS,
    GAP,
    LOCAL,
    LOOK_AHEAD,
    RATE,
    SNAPSHOTS,
    START,
)
from fedminmax.methods.qfedavg import QFedAvg
from fedminmax.methods.stochastic_afl import StochasticAFL
from fedminmax.methods.term import TERM

OVER_HOLDERS = (
    MethodCard(
        key="fedavg",
        make=FedAvg,
        paper="McMahan, Moore, Ramage, Hampson, Arcas, AISTATS 2017",
        optimises="mean risk",
        over="rows",
        pace=Pace.LOCAL_EPOCHS,
        works_with_absent=True,
        sources=RATE | LOCAL,
        required={},
    ),
    MethodCard(
        key="fedavg-fast",
        make=FedAvgFast,
        paper="McMahan et al. 2017's objective, with a server of second order (ours)",
        optimises="mean risk",
        over="rows",
        pace=Pace.LOOK_AHEAD,
        works_with_absent=False,
        sources=LOOK_AHEAD | GAP,
        required={},
    ),
    MethodCard(
        key="afl",
        make=AFL,
        paper="Mohri, Sivek, Suresh, ICML 2019",
        optimises="worst holder's risk",
        over="holders",
        pace=Pace.ONE_STEP,
        works_with_absent=False,
        sources=RATE | ADVERSARY | START | {"scale_adversary_rate": "ours: off, as in the paper"},
        required={},
    ),
    MethodCard(
        key="afl-fast",
        make=AFLFast,
        paper="Mohri et al. 2019's objective, with a prox-linear server (ours)",
        optimises="worst holder's risk",
        over="holders",
        pace=Pace.LOOK_AHEAD,
        works_with_absent=False,
        sources=LOOK_AHEAD,
        required={},
    ),
    MethodCard(
        key="stochastic-afl",
        make=StochasticAFL,
        paper="Mohri, Sivek, Suresh, ICML 2019, Stochastic-AFL",
        optimises="worst holder's risk",
        over="holders",
        pace=Pace.ONE_STEP,
        works_with_absent=False,
        sources=RATE
        | ADVERSARY
        | START
        | {
            "estimator": "the paper's first",
            "draws": "the paper",
            "batch_size": "the paper",
            "chi_squared": "the paper: optional",
        },
        required={},
    ),
    MethodCard(
        key="drfa",
        make=DRFA,
        paper="Deng, Kamani, Mahdavi, NeurIPS 2020",
        optimises="worst holder's risk, up to client drift",
        over="holders",
        pace=Pace.LOCAL_EPOCHS,
        works_with_absent=True,
        sources=RATE
        | START
        | SNAPSHOTS
        | {"holders_drawn": "ours: all, weighted by lambda; a number draws as in the paper"},
        required={},
    ),
    MethodCard(
        key="qfedavg",
        make=QFedAvg,
        paper="Li, Sanjabi, Beirami, Smith, ICLR 2020",
        optimises="mean of the holders' risks to the power q + 1",
        over="holders",
        pace=Pace.LOCAL_EPOCHS,
        works_with_absent=True,
        sources=RATE
        | LOCAL
        | {
            "q": "Papadaki et al. 2021 (0.2 and 5)",
            "weighting": "ours: n_k / n, so that q = 0 is FedAvg",
        },
        required={"q": "5"},
    ),
    MethodCard(
        key="term",
        make=TERM,
        paper="Li, Beirami, Sanjabi, Smith, ICLR 2021 (over holders, and over each one's groups)",
        optimises="tilted mean of the holders' risks",
        over="holders",
        pace=Pace.LOCAL_EPOCHS,
        works_with_absent=True,
        sources=RATE | LOCAL | {"tilt": "the authors' runs", "group_tilt": "ours: no second tilt"},
        required={},
    ),
    MethodCard(
        key="fedmgda",
        make=FedMGDA,
        paper="Hu, Shaloudegi, Zhang, Yu, IEEE TNSE 2022 (FedMGDA+)",
        optimises="a common descent direction for all holders",
        over="holders",
        pace=Pace.LOCAL_EPOCHS,
        works_with_absent=True,
        sources=RATE
        | LOCAL
        | {
            "epsilon": AUTHORS,
            "server_rate": AUTHORS,
            "server_decay": "ours: the paper decays it and gives no rate",
            "weighting": AUTHORS,
        },
        required={},
    ),
    MethodCard(
        key="ditto",
        make=Ditto,
        paper="Li, Hu, Beirami, Smith, ICML 2021",
        optimises="each holder's risk near a common model; the common model is FedAvg's",
        over="holders",
        pace=Pace.LOCAL_EPOCHS,
        works_with_absent=True,
        sources=RATE
        | LOCAL
        | {"pull": "the authors' FashionMNIST run", "personal_rate": "ours: the learning rate"},
        required={},
    ),
)
