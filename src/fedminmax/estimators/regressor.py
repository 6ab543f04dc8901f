"""A regressor for scikit-learn that is minimax over groups, with rows at one or many sites."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedminmax.estimators import base, settings
from fedminmax.estimators.additive import Explanation
from fedminmax.estimators.training import Rows, measure_scaling, place_rows, train_rows


@dataclass(kw_only=True, eq=False, repr=False)
class FedMinMaxRegressor(base.RegressorMixin, settings.TrainingSettings, base.BaseEstimator):
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
        settings.check_settings(self)
        features, y = base.checked_rows(self, X, y, y_numeric=True)
        seed = base.seed_of(self.random_state)
        no_classes = np.zeros(len(y), dtype=np.int64)
        column = y.astype(np.float64)[:, None]
        places = place_rows(
            no_classes,
            sensitive_features=sensitive_features,
            sites=sites,
            validation=settings.validation_share(self),
            seed=seed,
        )
        self.target_scaling_ = measure_scaling(column[places.train], wanted=self.standardize)
        precision = np.float64 if settings.kind_of(self) == settings.ADDITIVE else features.dtype
        target = self.target_scaling_.apply(column)[:, 0].astype(precision)
        rows = base.encoded_rows(
            self, Rows(features, target, places), loss="squared_error", outputs=1
        )
        unit = float(self.target_scaling_.scale[0]) ** 2
        trained = train_rows(
            self, rows, loss_name="squared_error", outputs=1, seed=seed, risk_unit=unit
        )
        base.set_fitted(self, trained)
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return a number for each row."""
        outputs = base.outputs_for(self, X).numpy()
        answers: NDArray[np.float64] = self.target_scaling_.undo(outputs)[:, 0]
        return answers

    def explain(self, X: Any) -> Explanation:
        """Return what pulls the prediction of each row up and down, of an additive model."""
        scaled = base.explanation_for(self, X, ("y",))
        return replace(
            scaled,
            base=self.target_scaling_.undo(scaled.base),
            contributions=scaled.contributions * self.target_scaling_.scale[0],
        )
