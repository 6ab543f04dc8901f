"""Train one model across many data holders, minimax over demographic groups.

Names are imported when first used, so that the command line answers at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedminmax.core.errors import DivergedError, InputError
    from fedminmax.core.iterates import Iterate
    from fedminmax.core.losses import brier_loss, cross_entropy_loss, squared_error_loss
    from fedminmax.core.models import cnn, linear, mlp
    from fedminmax.core.simplex import project_on_simplex
    from fedminmax.federation.checkpoint import load_checkpoint, save_checkpoint
    from fedminmax.federation.inprocess import InProcessFederation
    from fedminmax.federation.train import Progress, Round, start_of, train
    from fedminmax.methods.afl import AFL
    from fedminmax.methods.fedavg import FedAvg
    from fedminmax.methods.fedminmax import FedMinMax
    from fedminmax.methods.fedminmax_local import FedMinMaxLocal
    from fedminmax.methods.group_term import GroupTERM
    from fedminmax.methods.qfedavg import QFedAvg
    from fedminmax.methods.term import TERM

__version__ = "0.1.0"

_HOMES = {
    "AFL": "methods.afl",
    "DivergedError": "core.errors",
    "FedAvg": "methods.fedavg",
    "FedMinMax": "methods.fedminmax",
    "FedMinMaxLocal": "methods.fedminmax_local",
    "GroupTERM": "methods.group_term",
    "InProcessFederation": "federation.inprocess",
    "InputError": "core.errors",
    "Iterate": "core.iterates",
    "Progress": "federation.train",
    "QFedAvg": "methods.qfedavg",
    "Round": "federation.train",
    "TERM": "methods.term",
    "brier_loss": "core.losses",
    "cnn": "core.models",
    "cross_entropy_loss": "core.losses",
    "linear": "core.models",
    "load_checkpoint": "federation.checkpoint",
    "mlp": "core.models",
    "project_on_simplex": "core.simplex",
    "save_checkpoint": "federation.checkpoint",
    "squared_error_loss": "core.losses",
    "start_of": "federation.train",
    "train": "federation.train",
}

__all__ = [
    "AFL",
    "TERM",
    "DivergedError",
    "FedAvg",
    "FedMinMax",
    "FedMinMaxLocal",
    "GroupTERM",
    "InProcessFederation",
    "InputError",
    "Iterate",
    "Progress",
    "QFedAvg",
    "Round",
    "brier_loss",
    "cnn",
    "cross_entropy_loss",
    "linear",
    "load_checkpoint",
    "mlp",
    "project_on_simplex",
    "save_checkpoint",
    "squared_error_loss",
    "start_of",
    "train",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'fedminmax' has no attribute '{name}'")
    return getattr(import_module(f"fedminmax.{_HOMES[name]}"), name)
