"""How scikit-learn and Fairlearn users call it: frames, words, pipelines, folds, copies.

scikit-learn's own checks of an estimator, all of them, with no failure expected.

The page about the estimators runs as written, and says what it finds.
"""

import pickle
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.utils.estimator_checks import parametrize_with_checks

from fedminmax import FedMinMaxClassifier, FedMinMaxRegressor
from fedminmax.core.iterates import Iterate
from fedminmax.methods import AFL, FedAvg, FedMinMax, MinimaxFair
from tests.estimators.problems import two_groups

PROBLEM = two_groups(rows=200)
WORDS = np.array(["no", "yes"])[PROBLEM.label]
SEX = np.array(["female", "male"])[PROBLEM.group]
SITES = np.array([f"hospital {number}" for number in np.arange(200) % 7])
NAMES = ["age", "dose", "score"]


def fitted(x: Any, y: Any, sex: Any, sites: Any) -> FedMinMaxClassifier:
    return FedMinMaxClassifier(rounds=20).fit(x, y, sensitive_features=sex, sites=sites)


def test_numpy_pandas_and_polars_give_the_same_model() -> None:
    plain = fitted(PROBLEM.x, WORDS, SEX, SITES)
    expected = plain.predict_proba(PROBLEM.x)
    assert plain.classes_.tolist() == ["no", "yes"]
    assert plain.groups_ == ("female", "male")
    assert set(plain.predict(PROBLEM.x)) == {"no", "yes"}
    for library in (pd, pl):
        frame: Any = library.DataFrame(dict(zip(NAMES, PROBLEM.x.T, strict=True)))
        series: Any = library.Series
        trained = fitted(frame, series(WORDS), series(SEX), series(SITES))
        np.testing.assert_array_equal(trained.predict_proba(frame), expected)
        assert trained.feature_names_in_.tolist() == NAMES
        assert trained.classes_.tolist() == ["no", "yes"]


def test_several_protected_columns_are_crossed() -> None:
    age = np.where(np.arange(200) % 2, "old", "young")
    forms: list[Any] = [
        {"sex": SEX, "age": age},
        pd.DataFrame({"sex": SEX, "age": age}),
        pl.DataFrame({"sex": SEX, "age": age}),
        np.column_stack([SEX, age]),
        [list(pair) for pair in zip(SEX, age, strict=True)],
    ]
    for form in forms:
        with pytest.warns(UserWarning, match="fewer than minimum_group=30 rows are not trained"):
            trained = fitted(PROBLEM.x, WORDS, form, None)
        assert trained.small_groups_ == ("male / old", "male / young")
        assert trained.groups_ == ("female / old", "female / young", "male / old", "male / young")
        assert sum(trained.group_weights_.values()) == pytest.approx(1.0)


def test_a_pipeline_hands_groups_and_sites_on() -> None:
    steps = make_pipeline(PolynomialFeatures(2), FedMinMaxClassifier(rounds=20))
    steps.fit(
        PROBLEM.x,
        WORDS,
        fedminmaxclassifier__sensitive_features=SEX,
        fedminmaxclassifier__sites=SITES,
    )
    assert steps[-1].groups_ == ("female", "male")
    with sklearn.config_context(enable_metadata_routing=True):
        asking = FedMinMaxClassifier(rounds=20).set_fit_request(sensitive_features=True, sites=True)
        routed = make_pipeline(PolynomialFeatures(2), asking)
        routed.fit(PROBLEM.x, WORDS, sensitive_features=SEX, sites=SITES)
    np.testing.assert_array_equal(routed.predict_proba(PROBLEM.x), steps.predict_proba(PROBLEM.x))


def test_folds_get_their_share_of_groups_and_sites() -> None:
    metadata = {"sensitive_features": SEX, "sites": SITES}
    model = FedMinMaxClassifier(rounds=20, minimum_group=1)
    plain = cross_val_score(model, PROBLEM.x, WORDS, cv=3, params=metadata, error_score="raise")
    blind = cross_val_score(model, PROBLEM.x, WORDS, cv=3, error_score="raise")
    with sklearn.config_context(enable_metadata_routing=True):
        asking = clone(model).set_fit_request(sensitive_features=True, sites=True)
        routed = cross_val_score(
            asking, PROBLEM.x, WORDS, cv=3, params=metadata, error_score="raise"
        )
    np.testing.assert_array_equal(plain, routed)
    assert not np.array_equal(plain, blind)


def test_a_search_over_methods() -> None:
    methods = [FedMinMax(), FedAvg(epochs=1)]
    search = GridSearchCV(FedMinMaxClassifier(rounds=5, small="include"), {"method": methods}, cv=2)
    search.fit(PROBLEM.x, WORDS, sensitive_features=SEX, sites=SITES)
    assert search.best_params_["method"] in methods


@pytest.mark.parametrize("model", [FedMinMaxClassifier, FedMinMaxRegressor])
def test_clone_and_pickle(model: Any) -> None:
    y = PROBLEM.label
    trained = model(rounds=7, hidden=(4,), random_state=3).fit(PROBLEM.x, y, sensitive_features=SEX)
    copy = clone(trained)
    assert not hasattr(copy, "model_")
    assert copy.get_params() == trained.get_params()
    copy.fit(PROBLEM.x, y, sensitive_features=SEX)
    again = pickle.loads(pickle.dumps(trained))  # noqa: S301 - our own bytes
    for other in (copy, again):
        np.testing.assert_array_equal(other.predict(PROBLEM.x), trained.predict(PROBLEM.x))
    assert again.n_iter_ == 7
    assert again.n_features_in_ == 3
    assert "rounds=7" in repr(trained)


def test_random_states() -> None:
    def start(random_state: Any) -> Any:
        network = FedMinMaxClassifier(rounds=1, hidden=(4,), random_state=random_state)
        return network.fit(PROBLEM.x, WORDS).predict_proba(PROBLEM.x)

    np.testing.assert_array_equal(start(5), start(5))
    np.testing.assert_array_equal(
        start(np.random.RandomState(5)),
        start(np.random.RandomState(5)),
    )
    assert not np.array_equal(start(5), start(6))
    assert not np.array_equal(start(None), start(None))


def test_other_methods_and_what_they_leave() -> None:
    afl = FedMinMaxClassifier(method=AFL(), rounds=5).fit(
        PROBLEM.x, WORDS, sensitive_features=SEX, sites=SITES
    )
    assert afl.group_weights_ == {}
    assert len(afl.history_[-1].weights) == 7
    assert set(afl.risks_by_group_) == {"female", "male"}
    mixture = FedMinMaxRegressor(method=MinimaxFair(), rounds=3).fit(
        PROBLEM.x, PROBLEM.quantity, sensitive_features=SEX
    )
    assert np.isfinite(mixture.predict(PROBLEM.x)).all()


def test_single_precision_stays_single() -> None:
    trained, double = (
        FedMinMaxClassifier(model="linear").fit(x, WORDS, sensitive_features=SEX)
        for x in (PROBLEM.x.astype(np.float32), PROBLEM.x)
    )
    assert next(trained.model_.parameters()).element_size() == 4
    np.testing.assert_allclose(
        trained.predict_proba(PROBLEM.x), double.predict_proba(PROBLEM.x), atol=1e-4
    )


def test_history_has_a_point_for_each_round() -> None:
    trained = FedMinMaxClassifier(model="linear", loss="brier", rounds=20, optimality_gap=0.0).fit(
        PROBLEM.x, WORDS, sensitive_features=SEX
    )
    assert [point.round for point in trained.history_] == list(range(1, 21))
    assert trained.n_iter_ == 20
    assert trained.history_[0].risks == pytest.approx((0.5, 0.5))
    assert list(trained.group_weights_.values()) == list(trained.history_[-1].weights)


@pytest.mark.parametrize(
    ("rounds", "told_by"),
    [(5, ["FedMinMaxRegressor"]), (60, ["FedMinMaxRegressor"]), (4000, [])],
)
def test_fit_warns_until_the_rounds_are_enough(rounds: int, told_by: list[str]) -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(200, 3))
    sex = np.repeat(["f", "m"], 100)
    # Slopes of 1 and 2 with the same noise: the minimax answer is in between.
    y = x[:, 0] * np.repeat([1.0, 2.0], 100) + generator.normal(size=200)
    model = FedMinMaxRegressor(rounds=rounds, adversary_rate=0.1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(x, y, sensitive_features=sex)
    told = [w for w in caught if issubclass(w.category, ConvergenceWarning)]
    assert model.convergence_.converged == (not told_by)
    assert [str(w.message).partition(" has not")[0] for w in told] == told_by
    assert all(w.filename == __file__ for w in told)


def test_a_method_that_stops_by_itself_warns_if_it_could_not() -> None:
    with pytest.warns(ConvergenceWarning, match="may be .* above the lowest"):
        FedMinMaxClassifier(rounds=2).fit(PROBLEM.x, WORDS, sensitive_features=SEX)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FedMinMaxClassifier().fit(PROBLEM.x, WORDS, sensitive_features=SEX)


def test_a_rate_asks_for_algorithm_1_as_it_was() -> None:
    """Brier, no ridge, 500 rounds and the tail average were the defaults then."""
    asked = FedMinMaxClassifier(learning_rate=0.5).fit(PROBLEM.x, WORDS, sensitive_features=SEX)
    method = FedMinMax(0.5, 0.1, output=Iterate.TAIL_AVERAGE)
    given = FedMinMaxClassifier(method=method, loss="brier", ridge=0.0, rounds=500)
    given.fit(PROBLEM.x, WORDS, sensitive_features=SEX)
    assert asked.n_iter_ == 500
    np.testing.assert_array_equal(asked.predict_proba(PROBLEM.x), given.predict_proba(PROBLEM.x))


def test_a_rate_that_is_left_open_is_that_of_the_method_in_python() -> None:
    method = FedMinMax(adversary_rate=0.3)
    models = (FedMinMaxClassifier(adversary_rate=0.3), FedMinMaxClassifier(method=method))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        one, other = (
            model.set_params(rounds=5).fit(PROBLEM.x, WORDS, sensitive_features=SEX)
            for model in models
        )
    np.testing.assert_array_equal(one.predict_proba(PROBLEM.x), other.predict_proba(PROBLEM.x))


def test_a_network_chooses_its_round_by_rows_that_it_is_not_trained_on() -> None:
    words: Any = {"rounds": 12, "hidden": (4,), "random_state": 3, "learning_rate": 0.5}
    trained = FedMinMaxClassifier(**words).fit(PROBLEM.x, PROBLEM.label, sensitive_features=SEX)
    assert trained.validation_ is not None
    assert 0 <= trained.validation_.round <= 12
    plain = FedMinMaxClassifier(**words, validation=0).fit(
        PROBLEM.x, PROBLEM.label, sensitive_features=SEX
    )
    assert plain.validation_ is None
    # Scaled by training rows alone, and by all rows.
    assert np.allclose(plain.encoder_.mean, PROBLEM.x.mean(axis=0))
    assert not np.allclose(trained.encoder_.mean, PROBLEM.x.mean(axis=0), rtol=1e-9)


def test_patience_ends_training_early() -> None:
    trained = FedMinMaxClassifier(
        rounds=200,
        hidden=(8,),
        random_state=0,
        learning_rate=2.0,
        validation=0.3,
        patience=3,
        minimum_group=0,
    ).fit(PROBLEM.x, PROBLEM.label, sensitive_features=SEX)
    assert trained.n_iter_ < 200
    assert trained.n_iter_ == trained.validation_.round + 3


# The checks are about conduct, not about convergence.
ROUNDS = 15
ESTIMATORS = [FedMinMaxClassifier(rounds=ROUNDS), FedMinMaxRegressor(rounds=ROUNDS)]


@parametrize_with_checks(ESTIMATORS)  # type: ignore[untyped-decorator]
def test_scikit_learns_checks(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


PAGE = (Path(__file__).parents[2] / "docs" / "estimators.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_examples_run_one_after_another(tmp_path: Path) -> None:
    assert 0 < len(BLOCKS[0].splitlines()) <= 22
    program = tmp_path / "page.py"
    program.write_text("".join(BLOCKS))
    done = subprocess.run(
        [sys.executable, str(program)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    women = [line for line in done.stdout.splitlines() if line.startswith("| female")]
    without, with_adversary = (float(line.split("|")[4].split()[0]) for line in women)
    assert with_adversary < without  # the worst-off group's Brier risk falls
