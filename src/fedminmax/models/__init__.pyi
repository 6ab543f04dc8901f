from fedminmax.core.models import Mixture, cnn, linear, mlp
from fedminmax.exports.saved_model import SavedModel, load_model

__all__ = [
    "Mixture",
    "SavedModel",
    "cnn",
    "linear",
    "load_model",
    "mlp",
]
