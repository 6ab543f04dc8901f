"""The estimators against scikit-learn's solvers, scipy's exact minimax and the theory's lemma."""

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.linear_model import LinearRegression, LogisticRegression

from fedminmax import FedMinMaxClassifier, FedMinMaxRegressor
from tests.estimators.problems import group_risks, minimax_value, two_groups


@pytest.mark.parametrize("classes", [2, 3])
def test_with_one_group_and_cross_entropy_it_is_logistic_regression(classes: int) -> None:
    x, y = make_blobs(200, centers=classes, cluster_std=6.0, n_features=4, random_state=1)
    ours = FedMinMaxClassifier(model="linear", ridge=0.0, optimality_gap=1e-9).fit(x, y)
    theirs = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(x, y)
    np.testing.assert_allclose(ours.predict_proba(x), theirs.predict_proba(x), atol=1e-5)
    assert ours.score(x, y) == theirs.score(x, y)


def test_with_one_group_the_regressor_is_least_squares() -> None:
    problem = two_groups()
    ours = FedMinMaxRegressor(model="linear", ridge=0.0).fit(problem.x, problem.quantity)
    theirs = LinearRegression().fit(problem.x, problem.quantity)
    np.testing.assert_allclose(ours.predict(problem.x), theirs.predict(problem.x), atol=1e-9)
    assert ours.risks_by_group_["all"] == pytest.approx(
        np.mean((theirs.predict(problem.x) - problem.quantity) ** 2)
    )
    # The default ridge, which the proof needs, costs nothing that shows.
    default = FedMinMaxRegressor(model="linear").fit(problem.x, problem.quantity)
    spread = float(np.std(problem.quantity))
    np.testing.assert_allclose(
        default.predict(problem.x), ours.predict(problem.x), atol=1e-5 * spread
    )
    assert default.certificate_.gap < 1e-6
    assert default.n_iter_ == 1


@pytest.mark.parametrize("loss", ["brier", "cross_entropy"])
def test_a_linear_classifier_is_minimax(loss: str) -> None:
    problem = two_groups()
    ours = FedMinMaxClassifier(model="linear", loss=loss, tolerance=0.0).fit(
        problem.x, problem.label, sensitive_features=problem.group
    )
    best = minimax_value(problem, loss)
    assert max(ours.risks_by_group_.values()) == pytest.approx(best, rel=5e-4)
    assert ours.convergence_.converged
    assert (ours.certificate_ is None) == (loss == "brier")
    if ours.certificate_ is not None:
        assert ours.certificate_.gap <= 1e-4
        # Another solver's optimum without the ridge is below what is proved with it.
        assert best <= ours.certificate_.upper
    before = FedMinMaxClassifier(loss=loss, adversary_rate=0.1).fit(
        problem.x, problem.label, sensitive_features=problem.group
    )
    assert before.n_iter_ == 500
    assert ours.n_iter_ <= 40
    assert max(ours.risks_by_group_.values()) <= max(before.risks_by_group_.values()) + 1e-4 * best


def test_a_linear_regressor_is_minimax() -> None:
    problem = two_groups(1)
    ours = FedMinMaxRegressor(model="linear", tolerance=0.0).fit(
        problem.x, problem.quantity, sensitive_features=problem.group
    )
    best = minimax_value(problem, "squared_error")
    assert max(ours.risks_by_group_.values()) == pytest.approx(best, rel=1e-5)
    erm = np.linalg.pinv(problem.standardised) @ problem.quantity
    # The problem has something to gain: least squares is far from minimax.
    assert group_risks(problem, erm, "squared_error").max() > 1.1 * best


def test_who_holds_which_rows_changes_nothing() -> None:
    problem = two_groups()
    generator = np.random.default_rng(0)
    splits = [None, problem.group, problem.label, generator.integers(0, 40, len(problem.x))]
    splits.append(np.array([f"site {number}" for number in range(len(problem.x))]))
    models = [
        FedMinMaxClassifier(rounds=40, hidden=hidden, random_state=0, validation=0).fit(
            problem.x, problem.label, sensitive_features=problem.group, sites=sites
        )
        for hidden in ((), (8,))
        for sites in splits
    ]
    for first in (0, len(splits)):
        expected = models[first].predict_proba(problem.x)
        for other in models[first : first + len(splits)]:
            np.testing.assert_allclose(other.predict_proba(problem.x), expected, atol=1e-5)
            assert other.group_weights_ == pytest.approx(models[first].group_weights_, abs=1e-5)


def test_a_regressor_does_not_see_the_unit_of_its_target() -> None:
    problem = two_groups()

    def fitted(y: np.ndarray) -> FedMinMaxRegressor:
        return FedMinMaxRegressor(rounds=50).fit(problem.x, y, sensitive_features=problem.group)

    plain, large = fitted(problem.quantity), fitted(1000.0 * problem.quantity + 7.0)
    # The last digits of scaled targets differ; a ridge of 1e-6 lets them move flat directions.
    np.testing.assert_allclose(
        large.predict(problem.x), 1000.0 * plain.predict(problem.x) + 7.0, rtol=2e-6
    )
    for group, risk in plain.risks_by_group_.items():
        assert large.risks_by_group_[group] == pytest.approx(1e6 * risk)
    assert large.history_[-1].risks == pytest.approx(
        [1e6 * risk for risk in plain.history_[-1].risks]
    )


def test_without_an_adversary_groups_do_not_matter() -> None:
    problem = two_groups()
    # A rate of its own: the default one depends on the curvature of each group.
    blind = FedMinMaxClassifier(rounds=50, learning_rate=0.5).fit(problem.x, problem.label)
    told = FedMinMaxClassifier(rounds=50, learning_rate=0.5, adversary_rate=0.0).fit(
        problem.x, problem.label, sensitive_features=problem.group
    )
    np.testing.assert_allclose(
        told.predict_proba(problem.x), blind.predict_proba(problem.x), atol=1e-12
    )
    assert (told.groups_, blind.groups_) == (("0", "1"), ("all",))


def test_risks_by_group_are_the_mean_losses_of_the_model_that_predicts() -> None:
    problem = two_groups()
    trained = FedMinMaxClassifier(loss="brier").fit(
        problem.x, problem.label, sensitive_features=problem.group
    )
    errors = 2.0 * (trained.predict_proba(problem.x)[:, 1] - problem.label) ** 2
    for number in (0, 1):
        expected = errors[problem.group == number].mean()
        assert trained.risks_by_group_[str(number)] == pytest.approx(expected)
