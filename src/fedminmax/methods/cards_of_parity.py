"""Cards of the methods that look for equal rates of positive answers."""

from fedminmax.methods.card import MethodCard, Pace
from fedminmax.methods.fairfed import FairFed
from fedminmax.methods.fcfl import FCFL
from fedminmax.methods.fedfb import FedFB
from fedminmax.methods.fedgft import FedGFT
from fedminmax.methods.option_sources import AUTHORS, LOCAL, OURS, RATE

OF_PARITY = (
    MethodCard(
        key="fcfl",
        make=FCFL,
        paper="Cui, Pan, Liang, Zhang, Wang, NeurIPS 2021",
        optimises="worst holder's risk with every holder's disparity below epsilon",
        over="holders and groups (parity)",
        pace=Pace.ONE_STEP,
        works_with_absent=False,
        sources={
            "learning_rate": OURS,
            "epsilon": AUTHORS,
            "parity": OURS,
            "stage_one_rounds": AUTHORS,
            "batch_size": AUTHORS,
            "weight_decay": AUTHORS,
        },
        required={},
    ),
    MethodCard(
        key="fedfb",
        make=FedFB,
        paper="Zeng, Chen, Lee 2021 (arXiv 2110.15545)",
        optimises="mean risk with equal rates",
        over="groups (parity)",
        pace=Pace.LOCAL_EPOCHS,
        works_with_absent=True,
        sources=RATE | LOCAL | {"adversary_rate": OURS, "parity": OURS},
        required={},
    ),
    MethodCard(
        key="fairfed",
        make=FairFed,
        paper="Ezzeldin, Yan, He, Ferrara, Avestimehr, AAAI 2023",
        optimises="mean risk, holders reweighted towards equal rates",
        over="groups (parity)",
        pace=Pace.LOCAL_EPOCHS,
        works_with_absent=True,
        sources=RATE | LOCAL | {"beta": "the paper", "parity": OURS},
        required={},
    ),
    MethodCard(
        key="fedgft",
        make=FedGFT,
        paper="Wang, Payani, Lee, Kompella 2023",
        optimises="mean risk plus a penalty on unequal rates",
        over="groups (parity)",
        pace=Pace.LOCAL_EPOCHS,
        works_with_absent=True,
        sources=RATE | LOCAL | {"penalty": OURS, "parity": OURS},
        required={},
    ),
)
