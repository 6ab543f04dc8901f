from fedminmax.core.losses import brier_loss, cross_entropy_loss, squared_error_loss

__all__ = [
    "brier_loss",
    "cross_entropy_loss",
    "squared_error_loss",
]
