"""What both estimators share: scikit-learn's base classes, and attributes set by ``fit``.

Without scikit-learn, importing this module fails with a message that says how to install it.
Features are read, encoded and explained here.
"""

import warnings
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedminmax.core.additive.model import check_rising
from fedminmax.core.errors import InputError, install_command
from fedminmax.data.frames import is_frame
from fedminmax.estimators import coding
from fedminmax.estimators.additive import Explanation, explanation_of, start_additive
from fedminmax.estimators.settings import ADDITIVE, kind_of
from fedminmax.estimators.training import Rows, Trained, measure_scaling, outputs_of
from fedminmax.findings.convergence import verdict

__all__ = [
    "BaseEstimator",
    "ClassifierMixin",
    "ConvergenceWarning",
    "RegressorMixin",
    "check_classification_targets",
    "check_is_fitted",
    "seed_of",
]
# A model is trained in the precision of its features; other types become the first of these.
PRECISIONS = [np.float64, np.float32]


try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.utils import check_array, check_random_state, check_X_y
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


def checked_rows(
    estimator: Any, X: Any, y: Any, **checks: Any
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Check features and targets for ``fit``; text columns of a frame become categories."""
    estimator.categories_ = {}
    additive = kind_of(estimator) == ADDITIVE
    finite = "allow-nan" if additive else True
    if not (additive and is_frame(X)):
        table, target = validate_data(
            estimator, X, y, dtype=PRECISIONS, ensure_all_finite=finite, **checks
        )
        return table, target
    validate_data(estimator, X, skip_check_array=True)
    estimator.categories_ = {
        number: coding.categories_of(column) for number, column in coding.text_columns(X).items()
    }
    numbers = coding.numbers_of_frame(X, estimator.categories_)
    table, target = check_X_y(numbers, y, ensure_all_finite=finite, **checks)
    return table, target


def encoded_rows(estimator: Any, rows: Rows, *, loss: str, outputs: int) -> Rows:
    """Choose how features are encoded, from training rows, and encode them all."""
    train = rows.places.train
    if kind_of(estimator) != ADDITIVE:
        estimator.encoder_ = measure_scaling(rows.x[train], wanted=estimator.standardize)
        return replace(rows, x=estimator.encoder_.apply(rows.x))
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        names = [f"column {number}" for number in range(estimator.n_features_in_)]
    codes = coding.choose_codes(rows.x[train], list(map(str, names)), estimator.categories_)
    codes = codes.with_directions(estimator.monotone or {})
    check_rising(codes.blocks, outputs)
    start = start_additive(estimator, codes, rows, loss=loss, outputs=outputs)
    estimator.encoder_, estimator.counts_ = start.codes, start.counts
    return start.rows


def outputs_for(estimator: Any, X: Any) -> Tensor:
    """Check the features and return the model's outputs for them, in float64."""
    table = _checked_table(estimator, X)
    return outputs_of(estimator.model_, estimator.encoder_.apply(table)).double()


def explanation_for(estimator: Any, X: Any, scores: tuple[str, ...]) -> Explanation:
    """Check the features and explain the scores of an additive model."""
    table = _checked_table(estimator, X)
    if not isinstance(estimator.encoder_, coding.TableCodes):
        raise InputError(f"explain is for additive models, and this one is {kind_of(estimator)}")
    return explanation_of(estimator.model_, estimator.encoder_, estimator.counts_, table, scores)


def _checked_table(estimator: Any, X: Any) -> NDArray[Any]:
    check_is_fitted(estimator)
    additive = kind_of(estimator) == ADDITIVE
    finite = "allow-nan" if additive else True
    if additive and is_frame(X):
        validate_data(estimator, X, reset=False, skip_check_array=True)
        numbers = coding.numbers_of_frame(X, estimator.categories_)
        frame: NDArray[Any] = check_array(numbers, ensure_all_finite=finite)
        return frame
    if estimator.categories_:
        raise InputError(
            "the model was fitted on a data frame with text or categories; give a data frame"
        )
    table: NDArray[Any] = validate_data(
        estimator, X, reset=False, dtype=PRECISIONS, ensure_all_finite=finite
    )
    return table
