"""Every method, as users see it: one card each, in the order of tables."""

from fedminmax.methods.afl import AFL
from fedminmax.methods.card import MethodCard, Pace
from fedminmax.methods.fedavg import FedAvg
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.methods.fedminmax_local import FedMinMaxLocal
from fedminmax.methods.group_term import GroupTERM
from fedminmax.methods.qfedavg import QFedAvg
from fedminmax.methods.term import TERM

PAPADAKI = "Papadaki et al. 2021, Appendix B"
OURS = "ours: the paper gives none"
RATE = {"learning_rate": PAPADAKI}
ADVERSARY = {"adversary_rate": PAPADAKI}
LOCAL = {"epochs": PAPADAKI, "batch_size": PAPADAKI}
FLOOR = {"epsilon": "Papadaki et al. 2021, Algorithm 1 (no floor)"}

_ALL = (
    MethodCard(
        key="fedminmax",
        make=FedMinMax,
        paper="Papadaki, Martinez, Bertran, Sapiro, Rodrigues 2021, Algorithm 1",
        optimises="worst group's risk",
        over="groups",
        pace=Pace.ONE_STEP,
        works_with_absent=False,
        sources=RATE | ADVERSARY | FLOOR,
        required={},
    ),
    MethodCard(
        key="fedminmax-local",
        make=FedMinMaxLocal,
        paper="Papadaki et al. 2021, Algorithm 1, with local epochs (our extension)",
        optimises="worst group's risk, up to client drift",
        over="groups",
        pace=Pace.LOCAL_EPOCHS,
        works_with_absent=True,
        sources=RATE | ADVERSARY | FLOOR | LOCAL,
        required={},
    ),
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
        key="afl",
        make=AFL,
        paper="Mohri, Sivek, Suresh, ICML 2019",
        optimises="worst holder's risk",
        over="holders",
        pace=Pace.ONE_STEP,
        works_with_absent=False,
        sources=RATE
        | ADVERSARY
        | {
            "start": "Papadaki et al. 2021 (lambda^0 = n_k / n)",
            "scale_adversary_rate": "ours: off, as in the paper",
        },
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
        sources=RATE
        | LOCAL
        | {"tilt": "the authors' runs (0.1)", "group_tilt": "ours: no second tilt"},
        required={},
    ),
    MethodCard(
        key="group-term",
        make=GroupTERM,
        paper="Li, Beirami, Sanjabi, Smith, ICLR 2021 (over groups)",
        optimises="tilted mean of the groups' risks",
        over="groups",
        pace=Pace.ONE_STEP,
        works_with_absent=False,
        sources=RATE | {"tilt": OURS},
        required={"tilt": "5"},
    ),
)

CARDS: dict[str, MethodCard] = {card.key: card for card in _ALL}
