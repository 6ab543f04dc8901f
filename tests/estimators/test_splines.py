"""Spline estimators: the closed form with one group, never above the linear model, refusals."""

import numpy as np
import pytest

from fedminmax import FedMinMaxClassifier, FedMinMaxRegressor
from fedminmax.data.splines import HEIGHT, KNOTS
from tests.complaints import complaint_of
from tests.estimators.problems import two_groups


def test_with_one_group_it_is_ridge_regression_on_interpolated_columns() -> None:
    """scikit-learn's ridge leaves the intercept out, so the normal equations are solved here."""
    generator = np.random.default_rng(0)
    x = np.column_stack([generator.normal(3, 2, 300), generator.integers(0, 2, 300)])
    y = np.abs(x[:, 0] - 3) + x[:, 1] + 0.1 * generator.normal(size=300)
    ridge = 1e-3
    ours = FedMinMaxRegressor(model="spline", ridge=ridge).fit(x, y)
    z = (x[:, 0] - x[:, 0].mean()) / x[:, 0].std()
    steps = np.eye(len(KNOTS)).cumsum(axis=1)[1:] * HEIGHT
    wide = np.column_stack([z, x[:, 1], *(np.interp(z, KNOTS, step) for step in steps), 1 + 0 * z])
    scaled = (y - y.mean()) / y.std()
    # The mean of squared errors has curvature 2 X'X / n, the penalty m.
    matrix = 2 * wide.T @ wide / len(y) + ridge * np.eye(wide.shape[1])
    weights = np.linalg.solve(matrix, 2 * wide.T @ scaled / len(y))
    expected = y.mean() + y.std() * (wide @ weights)
    np.testing.assert_allclose(ours.predict(x), expected, atol=1e-8)


def test_with_the_same_ridge_it_is_never_worse_in_training() -> None:
    """With weights of 0 on the ramps it is the linear model, so its minimum is not higher."""
    problem = two_groups()
    linear, spline = (
        FedMinMaxClassifier(model=model).fit(
            problem.x, problem.label, sensitive_features=problem.group
        )
        for model in ("linear", "spline")
    )
    assert spline.certificate_.upper <= linear.certificate_.upper * (1 + 1e-4)
    assert spline.certificate_.gap <= 1e-4
    assert spline.n_iter_ <= 10


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"model": "tree"}, "model = 'tree'; give linear, spline, mlp, or None"),
        ({"model": "spline", "hidden": (8,)}, "other models have none"),
        ({"model": "mlp"}, "an mlp needs hidden layers such as (64, 64)"),
        ({"model": "spline", "standardize": False}, "give standardize=True"),
    ],
)
def test_what_cannot_work_is_refused(settings: dict[str, object], complaint: str) -> None:
    problem = two_groups()
    estimator = FedMinMaxClassifier(**settings)  # type: ignore[arg-type]
    assert complaint in complaint_of(lambda: estimator.fit(problem.x, problem.label))
