from fedminmax import data, losses, methods, metrics, models, training
from fedminmax.advice.counts import advise
from fedminmax.core.errors import InputError
from fedminmax.core.iterates import Iterate
from fedminmax.estimators.base import FedMinMaxClassifier, FedMinMaxRegressor
from fedminmax.exports.saved_model import load_model
from fedminmax.methods.fedavg import FedAvg
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.methods.look_ahead import FedMinMaxFast
from fedminmax.metrics.by_group import group_metrics
from fedminmax.runs.train import frontier, train_tables
from fedminmax.training.certify import certify
from fedminmax.training.checkpoint import train_resumably
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import fit, train

__version__: str

__all__ = [
    "FedAvg",
    "FedMinMax",
    "FedMinMaxClassifier",
    "FedMinMaxFast",
    "FedMinMaxRegressor",
    "InputError",
    "Iterate",
    "Simulation",
    "advise",
    "certify",
    "data",
    "fit",
    "frontier",
    "group_metrics",
    "load_model",
    "losses",
    "methods",
    "metrics",
    "models",
    "train",
    "train_resumably",
    "train_tables",
    "training",
]
