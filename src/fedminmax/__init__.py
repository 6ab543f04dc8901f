"""Train one model across many data holders, minimax over demographic groups.

Names are imported when first used, so that the command line answers at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedminmax.core.certificate import Certificate
    from fedminmax.core.errors import DivergedError, InputError
    from fedminmax.core.iterates import Iterate
    from fedminmax.core.losses import brier_loss, cross_entropy_loss, squared_error_loss
    from fedminmax.core.messages import Census, Reveals
    from fedminmax.core.mixture import Mixture
    from fedminmax.core.models import cnn, linear, mlp
    from fedminmax.core.parity import Parity
    from fedminmax.core.simplex import project_on_simplex
    from fedminmax.data.partition import Setting, partition, partition_by_dirichlet
    from fedminmax.estimators.classifier import FedMinMaxClassifier
    from fedminmax.estimators.regressor import FedMinMaxRegressor
    from fedminmax.federation.certify import certify
    from fedminmax.federation.checkpoint import load_checkpoint, save_checkpoint
    from fedminmax.federation.inprocess import InProcessFederation
    from fedminmax.federation.train import Progress, Round, start_of, train
    from fedminmax.methods.afl import AFL
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
    from fedminmax.methods.minimax_fair import MinimaxFair
    from fedminmax.methods.oracle_minimax import OracleMinimax
    from fedminmax.methods.qfedavg import QFedAvg
    from fedminmax.methods.relaxed_minimax_fair import RelaxedMinimaxFair
    from fedminmax.methods.stochastic_afl import StochasticAFL
    from fedminmax.methods.term import TERM
    from fedminmax.report.advice import Advice, advise
    from fedminmax.report.group_metrics import group_metrics, regression_group_metrics
    from fedminmax.report.model_file import load_model
    from fedminmax.report.saved_model import SavedModel

__version__ = "0.1.0"

_HOMES = {
    "AFL": "methods.afl",
    "AFLFast": "methods.afl_fast",
    "APStar": "methods.ap_star",
    "Advice": "report.advice",
    "Census": "core.messages",
    "Certificate": "core.certificate",
    "DRFA": "methods.drfa",
    "Ditto": "methods.ditto",
    "DivergedError": "core.errors",
    "FCFL": "methods.fcfl",
    "FairFed": "methods.fairfed",
    "FedAvg": "methods.fedavg",
    "FedAvgFast": "methods.fedavg_fast",
    "FedFB": "methods.fedfb",
    "FedGFT": "methods.fedgft",
    "FedMGDA": "methods.fedmgda",
    "FedMinMax": "methods.fedminmax",
    "FedMinMaxClassifier": "estimators.classifier",
    "FedMinMaxFast": "methods.fedminmax_fast",
    "FedMinMaxLocal": "methods.fedminmax_local",
    "FedMinMaxRegressor": "estimators.regressor",
    "GroupDRFA": "methods.group_drfa",
    "GroupSCAFFPD": "methods.group_scaff_pd",
    "GroupTERM": "methods.group_term",
    "InProcessFederation": "federation.inprocess",
    "InputError": "core.errors",
    "Iterate": "core.iterates",
    "MinimaxFair": "methods.minimax_fair",
    "Mixture": "core.mixture",
    "OracleMinimax": "methods.oracle_minimax",
    "Parity": "core.parity",
    "Progress": "federation.train",
    "QFedAvg": "methods.qfedavg",
    "RelaxedMinimaxFair": "methods.relaxed_minimax_fair",
    "Reveals": "core.messages",
    "Round": "federation.train",
    "SavedModel": "report.saved_model",
    "Setting": "data.partition",
    "StochasticAFL": "methods.stochastic_afl",
    "TERM": "methods.term",
    "advise": "report.advice",
    "brier_loss": "core.losses",
    "certify": "federation.certify",
    "cnn": "core.models",
    "cross_entropy_loss": "core.losses",
    "group_metrics": "report.group_metrics",
    "linear": "core.models",
    "load_checkpoint": "federation.checkpoint",
    "load_model": "report.model_file",
    "mlp": "core.models",
    "partition": "data.partition",
    "partition_by_dirichlet": "data.partition",
    "project_on_simplex": "core.simplex",
    "regression_group_metrics": "report.group_metrics",
    "save_checkpoint": "federation.checkpoint",
    "squared_error_loss": "core.losses",
    "start_of": "federation.train",
    "train": "federation.train",
}

__all__ = [
    "AFL",
    "DRFA",
    "FCFL",
    "TERM",
    "AFLFast",
    "APStar",
    "Advice",
    "Census",
    "Certificate",
    "Ditto",
    "DivergedError",
    "FairFed",
    "FedAvg",
    "FedAvgFast",
    "FedFB",
    "FedGFT",
    "FedMGDA",
    "FedMinMax",
    "FedMinMaxClassifier",
    "FedMinMaxFast",
    "FedMinMaxLocal",
    "FedMinMaxRegressor",
    "GroupDRFA",
    "GroupSCAFFPD",
    "GroupTERM",
    "InProcessFederation",
    "InputError",
    "Iterate",
    "MinimaxFair",
    "Mixture",
    "OracleMinimax",
    "Parity",
    "Progress",
    "QFedAvg",
    "RelaxedMinimaxFair",
    "Reveals",
    "Round",
    "SavedModel",
    "Setting",
    "StochasticAFL",
    "advise",
    "brier_loss",
    "certify",
    "cnn",
    "cross_entropy_loss",
    "group_metrics",
    "linear",
    "load_checkpoint",
    "load_model",
    "mlp",
    "partition",
    "partition_by_dirichlet",
    "project_on_simplex",
    "regression_group_metrics",
    "save_checkpoint",
    "squared_error_loss",
    "start_of",
    "train",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'fedminmax' has no attribute '{name}'")
    return getattr(import_module(f"fedminmax.{_HOMES[name]}"), name)
