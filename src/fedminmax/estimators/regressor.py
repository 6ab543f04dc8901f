"""A regressor for scikit-learn that is minimax over groups, with rows at one or many sites."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedminmax.estimators.base import (
    PRECISIONS,
    BaseEstimator,
    RegressorMixin,
    outputs_for,
    seed_of,
    set_fitted,
    validate_data,
)
from fedminmax.estimators.decide_model import decide, decided_model
from fedminmax.estimators.settings import TrainingSettings, check_settings, validation_share
from fedminmax.estimators.training import Rows, measure_scaling, place_rows, train_rows


@dataclass(kw_only=True, eq=False, repr=False)
class FedMinMaxRegressor(RegressorMixin, TrainingSettings, BaseEstimator):
    """Least squares regression that minimises the mean squared error of its worst group.

    The settings are those of ``TrainingSettings``. With ``standardize`` the target is also scaled,
    so that rates do not depend on its unit; risks are in the square of that unit.

    After ``fit``: the attributes of ``FedMinMaxClassifier`` except ``classes_``, and
    ``target_scaling_``.

    >>> x, y, sex = [[0.0], [1.0], [2.0], [3.0]], [1.0, 3.0, 5.0, 7.0], ["f", "m", "f", "m"]
    >>> trained = FedMinMaxRegressor().fit(x, y, sensitive_features=sex)
    >>> trained.predict([[10.0]]).round(3).tolist()
    [21.0]
    """

    def fit(
        self, X: Any, y: Any, *, sensitive_features: Any = None, sites: Any = None
    ) -> "FedMinMaxRegressor":
        """Train on all rows; see ``FedMinMaxClassifier.fit``, with a number per row as ``y``."""
        check_settings(self)
        features, y = validate_data(self, X, y, dtype=PRECISIONS, y_numeric=True)
        seed = seed_of(self.random_state)
        no_classes = np.zeros(len(y), dtype=np.int64)
        column = y.astype(np.float64)[:, None]

        def rows_with(validation: float) -> Rows:
            places = place_rows(
                no_classes,
                sensitive_features=sensitive_features,
                sites=sites,
                validation=validation,
                seed=seed,
            )
            self.scaling_ = measure_scaling(features[places.train], wanted=self.standardize)
            self.target_scaling_ = measure_scaling(column[places.train], wanted=self.standardize)
            target = self.target_scaling_.apply(column)[:, 0].astype(features.dtype)
            return Rows(self.scaling_.apply(features), target, places)

        loss = "squared_error"
        settings, compared = decide(self, rows_with, loss_name=loss, outputs=1, seed=seed)
        # The scale of the rows that were compared on; that of all rows comes next.
        compared_unit = float(self.target_scaling_.scale[0]) ** 2 if compared else 1.0
        rows = rows_with(validation_share(settings))
        unit = float(self.target_scaling_.scale[0]) ** 2
        trained = train_rows(settings, rows, loss_name=loss, outputs=1, seed=seed, risk_unit=unit)
        self.decided_model_ = decided_model(settings, compared, trained.groups, compared_unit)
        set_fitted(self, trained)
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return a number for each row."""
        outputs = outputs_for(self, X).numpy()
        answers: NDArray[np.float64] = self.target_scaling_.undo(outputs)[:, 0]
        return answers
