from fedminmax import data, federation, losses, methods, metrics, models
from fedminmax.core.errors import InputError
from fedminmax.core.iterates import Iterate
from fedminmax.estimators.classifier import FedMinMaxClassifier
from fedminmax.estimators.regressor import FedMinMaxRegressor
from fedminmax.federation.certify import certify
from fedminmax.federation.checkpoint import train_resumably
from fedminmax.federation.inprocess import InProcessFederation
from fedminmax.federation.train import train
from fedminmax.methods.fedavg import FedAvg
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.methods.fedminmax_fast import FedMinMaxFast
from fedminmax.metrics.by_group import group_metrics
from fedminmax.runs.advice import advise
from fedminmax.runs.model import load_model
from fedminmax.runs.train import train_tables

__version__: str

__all__ = [
    "FedAvg",
    "FedMinMax",
    "FedMinMaxClassifier",
    "FedMinMaxFast",
    "FedMinMaxRegressor",
    "InProcessFederation",
    "InputError",
    "Iterate",
    "advise",
    "certify",
    "data",
    "federation",
    "group_metrics",
    "load_model",
    "losses",
    "methods",
    "metrics",
    "models",
    "train",
    "train_resumably",
    "train_tables",
]
