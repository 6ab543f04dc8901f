"""What the estimators take from scikit-learn, or how to get it."""

from numbers import Integral
from typing import Any

import numpy as np

from fedminmax.core.errors import InputError
from fedminmax.core.optional_packages import install_command

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"{error.name} is needed: {install_command('sklearn')}", name=error.name
    ) from None

__all__ = [
    "PRECISIONS",
    "BaseEstimator",
    "ClassifierMixin",
    "ConvergenceWarning",
    "RegressorMixin",
    "check_classification_targets",
    "check_is_fitted",
    "seed_of",
    "validate_data",
]

# A model is trained in the precision of its features; whatever is neither becomes the first.
PRECISIONS = [np.float64, np.float32]


def seed_of(random_state: Any) -> int:
    """Return a whole number as it is; draw one from a generator, or from numpy's own for None."""
    if isinstance(random_state, Integral):
        if random_state < 0:
            raise InputError(f"random_state = {random_state}; give zero or a positive number")
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31))
