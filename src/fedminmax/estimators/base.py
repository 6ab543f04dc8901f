"""A classifier and a regressor for scikit-learn, minimax over groups, with rows at many sites.

Without scikit-learn, importing this module fails with a message that says how to install it.
Features are read, encoded and explained here.
"""

import warnings
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedminmax.core.additive.model import ADDITIVE, check_rising
from fedminmax.core.errors import InputError, install_command
from fedminmax.data.frames import is_frame
from fedminmax.estimators import coding
from fedminmax.estimators.settings import (
    TrainingSettings,
    check_settings,
    kind_of,
    loss_of,
    validation_share,
)
from fedminmax.estimators.training import (
    Explanation,
    Rows,
    Trained,
    explanation_of,
    measure_scaling,
    outputs_of,
    place_rows,
    start_additive,
    train_rows,
)
from fedminmax.findings.convergence import convergence_text

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
        message = convergence_text(type(estimator).__name__, trained.convergence, "rounds=")
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


LOSSES = ("brier", "cross_entropy")


@dataclass(kw_only=True, eq=False, repr=False)
class FedMinMaxClassifier(ClassifierMixin, TrainingSettings, BaseEstimator):
    """Softmax classifier that minimises the risk of its worst group.

    The settings are those of ``TrainingSettings``, and ``loss``: "cross_entropy" (as in logistic
    regression) or "brier" (the sum over classes of squared differences, 0 to 2). None is
    cross-entropy with FedMinMaxFast, which can then prove how low a linear model can bring the
    worst group's risk, else Brier.

    After ``fit``: ``classes_``, ``n_features_in_``, ``feature_names_in_`` (if the features had
    names), ``groups_`` (names), ``small_groups_`` (names of those with too few rows to be trained
    for; ``fit`` warns about them), ``group_weights_`` (by name, after the last round; merged small
    groups count as one; empty for a method that does not weight groups), ``risks_by_group_``
    (mean training loss by name), ``history_`` (a ``RoundRecord`` per round), ``convergence_``
    (whether the rounds were enough; if not, ``fit`` warns), ``certificate_`` (what is certified
    about the worst group's training risk; None if nothing is), ``validation_`` (the round that
    validation rows chose, with its worst group's risk and standard error; None without them),
    ``n_iter_``
    (rounds), ``model_`` (a torch module) and ``encoder_``, whose ``apply`` turns features into
    what the module takes. ``explain`` says what pulls the score of a row up and down.

    >>> x, y, sex = [[0.0], [1.0], [2.0], [3.0]], ["no", "no", "yes", "yes"], ["f", "m", "f", "m"]
    >>> trained = FedMinMaxClassifier().fit(x, y, sensitive_features=sex)
    >>> trained.predict([[0.5], [2.5]]).tolist(), trained.groups_
    (['no', 'yes'], ('f', 'm'))
    """

    loss: str | None = None

    def fit(
        self, X: Any, y: Any, *, sensitive_features: Any = None, sites: Any = None
    ) -> "FedMinMaxClassifier":
        """Train on all rows.

        Args:
            X: features [rows, columns] in numpy, pandas or polars. They are numbers; an additive
                model also takes missing values (NaN), and text, categories and dates of data
                frames.
            y: the class of each row, numbers or strings.
            sensitive_features: the group of each row: one column, or several to be crossed (a
                data frame, a dict, a two-dimensional array); None is one group.
            sites: the site of each row, numbers or strings; None is a single site.
        """
        check_settings(self)
        if self.loss not in (None, *LOSSES):
            raise InputError(f"loss = {self.loss!r}; give 'brier' or 'cross_entropy'")
        loss = loss_of(self, self.loss)
        features, y = checked_rows(self, X, y)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError(
                f"y has one class, {self.classes_.tolist()[0]!r}, in all {len(y)} rows; "
                "give rows of at least two classes"
            )
        seed = seed_of(self.random_state)
        places = place_rows(
            labels,
            sensitive_features=sensitive_features,
            sites=sites,
            validation=validation_share(self),
            seed=seed,
        )
        outputs = len(self.classes_)
        rows = encoded_rows(self, Rows(features, labels, places), loss=loss, outputs=outputs)
        trained = train_rows(self, rows, loss_name=loss, outputs=outputs, seed=seed)
        set_fitted(self, trained)
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return each class's probability, in the order of ``classes_``."""
        probabilities: NDArray[np.float64] = torch.softmax(outputs_for(self, X), dim=1).numpy()
        return probabilities

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each row."""
        probabilities = self.predict_proba(X)
        answers: NDArray[Any] = self.classes_[probabilities.argmax(axis=1)]
        return answers

    def explain(self, X: Any) -> Explanation:
        """Return what pulls the scores of each row up and down, of an additive model."""
        check_is_fitted(self)
        names = tuple(map(str, self.classes_))
        return explanation_for(self, X, names[1:] if len(names) == 2 else names)


@dataclass(kw_only=True, eq=False, repr=False)
class FedMinMaxRegressor(RegressorMixin, TrainingSettings, BaseEstimator):
    """Least squares regression that minimises the mean squared error of its worst group.

    The settings are those of ``TrainingSettings``. With ``standardize`` the target is also scaled,
    so that rates do not depend on its unit; risks are in the square of that unit. Effects of an
    additive model end with the training rows: beyond them, predictions are those of the last bin,
    where a linear model goes on.

    After ``fit``: the attributes of ``FedMinMaxClassifier`` except ``classes_``, and
    ``target_scaling_``.

    >>> x, y, sex = [[0.0], [1.0], [2.0], [3.0]], [1.0, 3.0, 5.0, 7.0], ["f", "m", "f", "m"]
    >>> trained = FedMinMaxRegressor().fit(x, y, sensitive_features=sex)
    >>> trained.predict([[1.0], [10.0]]).round(3).tolist()
    [3.0, 7.0]
    """

    def fit(
        self, X: Any, y: Any, *, sensitive_features: Any = None, sites: Any = None
    ) -> "FedMinMaxRegressor":
        """Train on all rows; see ``FedMinMaxClassifier.fit``, with a number per row as ``y``."""
        check_settings(self)
        features, y = checked_rows(self, X, y, y_numeric=True)
        seed = seed_of(self.random_state)
        no_classes = np.zeros(len(y), dtype=np.int64)
        column = y.astype(np.float64)[:, None]
        places = place_rows(
            no_classes,
            sensitive_features=sensitive_features,
            sites=sites,
            validation=validation_share(self),
            seed=seed,
        )
        self.target_scaling_ = measure_scaling(column[places.train], wanted=self.standardize)
        precision = np.float64 if kind_of(self) == ADDITIVE else features.dtype
        target = self.target_scaling_.apply(column)[:, 0].astype(precision)
        rows = encoded_rows(self, Rows(features, target, places), loss="squared_error", outputs=1)
        unit = float(self.target_scaling_.scale[0]) ** 2
        trained = train_rows(
            self, rows, loss_name="squared_error", outputs=1, seed=seed, risk_unit=unit
        )
        set_fitted(self, trained)
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return a number for each row."""
        outputs = outputs_for(self, X).numpy()
        answers: NDArray[np.float64] = self.target_scaling_.undo(outputs)[:, 0]
        return answers

    def explain(self, X: Any) -> Explanation:
        """Return what pulls the prediction of each row up and down, of an additive model."""
        scaled = explanation_for(self, X, ("y",))
        return replace(
            scaled,
            base=self.target_scaling_.undo(scaled.base),
            contributions=scaled.contributions * self.target_scaling_.scale[0],
        )
