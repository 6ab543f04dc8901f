from fedminmax.core.mixture import Mixture
from fedminmax.core.models import cnn, linear, mlp
from fedminmax.report.model_file import load_model
from fedminmax.report.saved_model import SavedModel

__all__ = [
    "Mixture",
    "SavedModel",
    "cnn",
    "linear",
    "load_model",
    "mlp",
]
