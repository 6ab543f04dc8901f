"""Cards of the methods that look after groups."""

from fedminmax.methods.ap_star import APStar
from fedminmax.methods.card import MethodCard, Pace
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.methods.fedminmax_fast import FedMinMaxFast
from fedminmax.methods.fedminmax_local import FedMinMaxLocal
from fedminmax.methods.group_drfa import GroupDRFA
from fedminmax.methods.group_scaff_pd import GroupSCAFFPD
from fedminmax.methods.group_term import GroupTERM
from fedminmax.methods.minimax_fair import MinimaxFair
from fedminmax.methods.option_sources import (
    ADVERSARY,
    AUTHORS,
    FITS,
    FLOOR,
    GAP,
    LOCAL,
    LOOK_AHEAD,
    OURS,
    RATE,
    SNAPSHOTS,
)
from fedminmax.methods.oracle_minimax import OracleMinimax
from fedminmax.methods.relaxed_minimax_fair import RelaxedMinimaxFair

OVER_GROUPS = (
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
        key="fedminmax-fast",
        make=FedMinMaxFast,
        paper="Papadaki et al. 2021's objective, with a prox-linear server (ours)",
        optimises="worst group's risk",
        over="groups",
        pace=Pace.LOOK_AHEAD,
        works_with_absent=False,
        sources=FLOOR | LOOK_AHEAD | GAP,
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
        key="group-drfa",
        make=GroupDRFA,
        paper="Deng, Kamani, Mahdavi, NeurIPS 2020, with groups in place of holders",
        optimises="worst group's risk, up to client drift",
        over="groups",
        pace=Pace.LOCAL_EPOCHS,
        works_with_absent=True,
        sources=RATE | FLOOR | SNAPSHOTS,
        required={},
    ),
    MethodCard(
        key="group-scaff-pd",
        make=GroupSCAFFPD,
        paper="Yu, Karimireddy, Ma, Jordan 2023 (SCAFF-PD), with groups in place of holders",
        optimises="worst group's risk, without client drift",
        over="groups",
        pace=Pace.LOCAL_EPOCHS,
        works_with_absent=False,
        sources=RATE
        | ADVERSARY
        | FLOOR
        | LOCAL
        | {"extrapolation": "the paper (theta = 1 without strong convexity)"},
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
    MethodCard(
        key="ap-star",
        make=APStar,
        paper="Martinez, Bertran, Sapiro, ICML 2020",
        optimises="worst group's risk: the best of a sequence of weighted fits",
        over="groups",
        pace=Pace.ONE_STEP,
        works_with_absent=False,
        sources=RATE
        | FITS
        | {"alpha": AUTHORS, "divisor": AUTHORS, "divisor_cap": AUTHORS, "fit_patience": AUTHORS},
        required={},
    ),
    MethodCard(
        key="minimax-fair",
        make=MinimaxFair,
        paper="Diana, Gill, Kearns, Kenthapadi, Roth, AIES 2021",
        optimises="worst group's risk of a mixture of weighted fits",
        over="groups",
        pace=Pace.ONE_STEP,
        works_with_absent=False,
        sources=RATE | FITS | {"adversary_rate": AUTHORS},
        required={},
    ),
    MethodCard(
        key="relaxed-minimax-fair",
        make=RelaxedMinimaxFair,
        paper="Diana, Gill, Kearns, Kenthapadi, Roth, AIES 2021, relaxed form",
        optimises="mean risk of a mixture with every group's risk at most gamma",
        over="groups",
        pace=Pace.ONE_STEP,
        works_with_absent=False,
        sources=RATE
        | FITS
        | {
            "gamma": "yours to choose",
            "adversary_rate": AUTHORS,
            "discard": AUTHORS,
            "fit_patience": OURS,
        },
        required={"gamma": "0.47"},
    ),
    MethodCard(
        key="oracle-minimax",
        make=OracleMinimax,
        paper="Chen, Lucier, Singer, Syrgkanis, NeurIPS 2017",
        optimises="worst group's risk of a mixture of weighted fits",
        over="groups",
        pace=Pace.ONE_STEP,
        works_with_absent=False,
        sources=RATE | FITS | {"fits": OURS},
        required={},
    ),
)
