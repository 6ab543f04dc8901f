"""What both estimators share: scikit-learn's base classes, and attributes set by ``fit``.

Without scikit-learn, importing this module fails with a message that says how to install it.
The model's outputs, from which predictions are made, are also computed here.
"""

import warnings
from numbers import Integral
from typing import Any

import numpy as np
from torch import Tensor

from fedminmax.core.errors import InputError, install_command
from fedminmax.estimators.training import Trained, outputs_of
from fedminmax.findings.convergence import verdict

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
# A model is trained in the precision of its features; other types become the first of these.
PRECISIONS = [np.float64, np.float32]


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


def seed_of(random_state: Any) -> int:
    """Return an integer unchanged; draw one from a generator, or from numpy's own for None."""
    if isinstance(random_state, Integral):
        if random_state < 0:
            raise InputError(f"random_state = {random_state}; give zero or a positive number")
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31))


def set_fitted(estimator: Any, trained: Trained) -> None:
    """Set the attributes that an estimator has after ``fit``; by convention they end in _."""
    estimator.model_ = trained.model
    estimator.groups_ = trained.groups
    estimator.small_groups_ = trained.small_groups
    estimator.risks_by_group_ = trained.risks_by_group
    estimator.group_weights_ = trained.group_weights
    estimator.history_ = trained.history
    estimator.convergence_ = trained.convergence
    estimator.certificate_ = trained.certificate
    estimator.validation_ = trained.validation
    estimator.n_iter_ = len(trained.history)
    if trained.small_groups:
        names = ", ".join(f"'{name}'" for name in trained.small_groups)
        message = (
            f"groups with fewer than minimum_group={estimator.minimum_group} rows are not trained "
            f"for as the worst group (small={estimator.small!r}): {names}"
        )
        warnings.warn(message, UserWarning, stacklevel=3)
    if not trained.convergence.converged:
        message = verdict(type(estimator).__name__, trained.convergence, "rounds=")
        # Report the line that called fit.
        warnings.warn(message, ConvergenceWarning, stacklevel=3)


def outputs_for(estimator: Any, X: Any) -> Tensor:
    """Check the features and return the model's outputs for them, in float64."""
    check_is_fitted(estimator)
    features = validate_data(estimator, X, reset=False, dtype=PRECISIONS)
    return outputs_of(estimator.model_, estimator.scaling_.apply(features)).double()
