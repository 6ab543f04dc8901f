"""A classifier for scikit-learn that is minimax over groups, with rows at one or many sites."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedminmax.core.errors import InputError
from fedminmax.estimators import base
from fedminmax.estimators.additive import Explanation
from fedminmax.estimators.settings import (
    TrainingSettings,
    check_settings,
    loss_of,
    validation_share,
)
from fedminmax.estimators.training import Rows, place_rows, train_rows

LOSSES = ("brier", "cross_entropy")


@dataclass(kw_only=True, eq=False, repr=False)
class FedMinMaxClassifier(base.ClassifierMixin, TrainingSettings, base.BaseEstimator):
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
        features, y = base.checked_rows(self, X, y)
        base.check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError(
                f"y has one class, {self.classes_.tolist()[0]!r}, in all {len(y)} rows; "
                "give rows of at least two classes"
            )
        seed = base.seed_of(self.random_state)
        places = place_rows(
            labels,
            sensitive_features=sensitive_features,
            sites=sites,
            validation=validation_share(self),
            seed=seed,
        )
        outputs = len(self.classes_)
        rows = base.encoded_rows(self, Rows(features, labels, places), loss=loss, outputs=outputs)
        trained = train_rows(self, rows, loss_name=loss, outputs=outputs, seed=seed)
        base.set_fitted(self, trained)
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return each class's probability, in the order of ``classes_``."""
        probabilities: NDArray[np.float64] = torch.softmax(base.outputs_for(self, X), dim=1).numpy()
        return probabilities

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each row."""
        probabilities = self.predict_proba(X)
        answers: NDArray[Any] = self.classes_[probabilities.argmax(axis=1)]
        return answers

    def explain(self, X: Any) -> Explanation:
        """Return what pulls the scores of each row up and down, of an additive model."""
        base.check_is_fitted(self)
        names = tuple(map(str, self.classes_))
        return base.explanation_for(self, X, names[1:] if len(names) == 2 else names)
