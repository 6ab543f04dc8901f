from fedminmax.core.parity import Parity
from fedminmax.methods.afl import AFL, StochasticAFL
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
from fedminmax.methods.look_ahead import AFLFast, FedAvgFast, FedMinMaxFast, Objective
from fedminmax.methods.minimax_fair import MinimaxFair, RelaxedMinimaxFair
from fedminmax.methods.oracle_minimax import OracleMinimax
from fedminmax.methods.qfedavg import QFedAvg
from fedminmax.methods.term import TERM, GroupTERM

__all__ = [
    "AFL",
    "DRFA",
    "FCFL",
    "TERM",
    "AFLFast",
    "APStar",
    "Ditto",
    "FairFed",
    "FedAvg",
    "FedAvgFast",
    "FedFB",
    "FedGFT",
    "FedMGDA",
    "FedMinMax",
    "FedMinMaxFast",
    "FedMinMaxLocal",
    "FedSRCVaR",
    "GroupDRFA",
    "GroupSCAFFPD",
    "GroupTERM",
    "LoGoFair",
    "MinimaxFair",
    "Objective",
    "OracleMinimax",
    "Parity",
    "QFedAvg",
    "RelaxedMinimaxFair",
    "StochasticAFL",
]
