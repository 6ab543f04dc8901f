"""What an estimator has after ``fit``, and what its predictions start from."""

import warnings
from typing import Any

from torch import Tensor

from fedminmax.estimators.scikit_learn import (
    PRECISIONS,
    ConvergenceWarning,
    check_is_fitted,
    validate_data,
)
from fedminmax.estimators.training import Trained, outputs_of
from fedminmax.report.convergence_words import verdict


def keep(estimator: Any, trained: Trained) -> None:
    """Give an estimator what it has after ``fit``; scikit-learn asks for names that end in _."""
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
        words = (
            f"groups with fewer than minimum_group={estimator.minimum_group} rows are not trained "
            f"for as the worst group (small={estimator.small!r}): {names}"
        )
        warnings.warn(words, UserWarning, stacklevel=3)
    if not trained.convergence.converged:
        words = verdict(type(estimator).__name__, trained.convergence, "rounds=")
        # As if from the line that called fit.
        warnings.warn(words, ConvergenceWarning, stacklevel=3)


def outputs_for(estimator: Any, X: Any) -> Tensor:
    """Check the features and return the model's outputs for them, in float64."""
    check_is_fitted(estimator)
    features = validate_data(estimator, X, reset=False, dtype=PRECISIONS)
    return outputs_of(estimator.model_, estimator.scaling_.apply(features)).double()
