"""scikit-learn's own checks of an estimator, all of them, with no failure expected."""

from collections.abc import Callable
from typing import Any

from sklearn.utils.estimator_checks import parametrize_with_checks

from fedminmax import FedMinMaxClassifier, FedMinMaxRegressor

# The checks are about conduct, not about convergence.
ROUNDS = 15
ESTIMATORS = [FedMinMaxClassifier(rounds=ROUNDS), FedMinMaxRegressor(rounds=ROUNDS)]


@parametrize_with_checks(ESTIMATORS)  # type: ignore[untyped-decorator]
def test_scikit_learns_checks(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)
