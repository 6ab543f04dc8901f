"""Additive estimators: their tables of effects, made-up truths, missing values, words and dates."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from fedminmax import FedMinMaxClassifier, FedMinMaxRegressor
from fedminmax.core.errors import InputError
from fedminmax.methods.fed_srcvar import FedSRCVaR
from tests.complaints import complaint_of

GENERATOR = np.random.default_rng(0)
ROWS = 900
X = GENERATOR.normal(size=(ROWS, 3))
CURVE = 1.5 * np.sin(3 * X[:, 0]) + X[:, 1]
LABEL = (GENERATOR.random(ROWS) < 1 / (1 + np.exp(-2 * CURVE))).astype(int)
SEX = np.where(GENERATOR.random(ROWS) < 0.3, "female", "male")


def table_scores(model: Any, x: np.ndarray) -> np.ndarray:
    """Evaluate the tables of effects by hand: a loop over rows and columns."""
    effects, intercepts = model.model_.effects.detach().numpy(), model.model_.bias.detach().numpy()
    outputs = np.tile(intercepts, (len(x), 1))
    codes, start = [], 0
    for column, values in zip(model.encoder_.columns, x.T, strict=True):
        bins = [sum(value >= edge for edge in column.edges) for value in values]
        missing = len(column.edges) + 1 if column.flags_missing else column.fallback
        own = [missing if np.isnan(v) else b for v, b in zip(values, bins, strict=True)]
        outputs += effects[:, [start + code for code in own]].T
        start += column.block.size
        codes.append(own)
    for pair in model.encoder_.pairs:
        for row in range(len(x)):
            first = pair.first_cells[codes[pair.first][row]]
            second = pair.second_cells[codes[pair.second][row]]
            outputs[row] += effects[:, start + first * pair.width + second]
        start += pair.block.size
    return outputs


@pytest.mark.parametrize("classes", [2, 3])
def test_scores_are_sums_of_effects_and_explanations_add_up(classes: int) -> None:
    x = X.copy()
    x[::7, 2] = np.nan
    x[:, 1] = np.round(x[:, 1] * np.sign(X[:, 0]), 1)
    y = LABEL + (classes == 3) * (X[:, 2] > 1)
    model = FedMinMaxClassifier(pairs=2).fit(x, y, sensitive_features=SEX)
    # Beyond all edges, and missing where training rows never were.
    x = np.vstack([x[:50], [[99.0, -99.0, np.nan], [np.nan, np.nan, 0.0]]])
    outputs = table_scores(model, x)
    chances = np.exp(outputs) / np.exp(outputs).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(x), chances, atol=1e-12)
    explained = model.explain(x)
    scores = np.log(chances[:, 1:] / chances[:, :1])
    if classes == 3:
        scores = outputs - outputs.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(explained.score, scores, atol=1e-12)
    assert explained.scores == (("1",) if classes == 2 else ("0", "1", "2"))
    assert explained.effects[:3] == ("column 0", "column 1", "column 2")
    assert len(explained.effects) == 3 + len(model.encoder_.pairs)


def test_the_base_is_the_mean_score_of_training_rows() -> None:
    model = FedMinMaxRegressor().fit(X, 1000 + 50 * CURVE, sensitive_features=SEX)
    explained = model.explain(X)
    np.testing.assert_allclose(explained.score[:, 0], model.predict(X), atol=1e-9)
    assert explained.base[0] == pytest.approx(model.predict(X).mean(), abs=1e-9)
    np.testing.assert_allclose(explained.contributions.mean(axis=0), 0.0, atol=1e-9)


def test_it_follows_curves_as_boosted_trees_do_and_lines_as_logistic_regression_does() -> None:
    def test_loss(model: Any, score: np.ndarray) -> float:
        generator = np.random.default_rng(1)
        y = generator.random(ROWS) < 1 / (1 + np.exp(-score))
        fitted = model.fit(X[:600], y[:600])
        return float(log_loss(y[600:], fitted.predict_proba(X[600:])))

    curves, lines = 2 * CURVE, 2 * X[:, 0] - X[:, 1]
    ours, trees = FedMinMaxClassifier(), HistGradientBoostingClassifier(random_state=0)
    assert test_loss(ours, curves) < 0.9 * test_loss(LogisticRegression(), curves)
    assert test_loss(ours, curves) < test_loss(trees, curves)
    assert test_loss(ours, lines) < 1.03 * test_loss(LogisticRegression(), lines)


def test_units_hardly_matter() -> None:
    """Scaled by a power of two, bins have the same records; their edges are rounded otherwise."""
    plain = FedMinMaxClassifier().fit(X, LABEL, sensitive_features=SEX)
    scaled = FedMinMaxClassifier().fit(X * 2.0**40, LABEL, sensitive_features=SEX)
    np.testing.assert_allclose(scaled.predict_proba(X * 2.0**40), plain.predict_proba(X), atol=0.02)


def frames() -> dict[str, Any]:
    town = np.array(["north", "south", "east", None], dtype=object)[GENERATOR.integers(0, 4, ROWS)]
    day = np.datetime64("2020-01-01") + GENERATOR.integers(0, 900, ROWS).astype("timedelta64[D]")
    columns = {"dose": X[:, 0], "town": town, "day": day, "smokes": X[:, 2] > 0}
    return {
        "pandas": pd.DataFrame(columns).astype({"town": "category"}),
        "polars": pl.DataFrame(columns),
    }


def test_words_categories_dates_and_booleans_of_frames() -> None:
    tables = frames()
    town = np.array([str(value) for value in tables["polars"]["town"]])
    chance = np.where(town == "north", 0.9, np.where(town == "None", 0.6, 0.2))
    y = np.where(np.random.default_rng(2).random(ROWS) < chance, "yes", "no")
    models = {
        library: FedMinMaxClassifier(pairs=0).fit(table, y, sensitive_features=SEX)
        for library, table in tables.items()
    }
    chances = {name: models[name].predict_proba(table)[:, 1] for name, table in tables.items()}
    model = models["polars"]
    assert model.explain(tables["polars"]).effects == ("dose", "town", "day", "smokes")
    assert "give a data frame" in complaint_of(lambda: model.predict(np.zeros((2, 4))))
    np.testing.assert_array_equal(chances["pandas"], chances["polars"])
    for value, truth in (("north", 0.9), ("south", 0.2), ("None", 0.6)):
        assert chances["polars"][town == value].mean() == pytest.approx(truth, abs=0.07)
    unseen = tables["polars"].head(3).with_columns(town=pl.lit("moon"))
    assert np.isfinite(model.predict_proba(unseen)).all()
    wrong = tables["polars"].with_columns(dose=pl.lit("much"))
    assert "column 'dose' holds text" in complaint_of(lambda: model.predict(wrong))


def test_missing_values_have_an_effect() -> None:
    x = X.copy()
    x[LABEL == 1, 2] = np.where(GENERATOR.random(LABEL.sum()) < 0.7, np.nan, x[LABEL == 1, 2])
    model = FedMinMaxClassifier(pairs=0).fit(x, LABEL)
    missing = np.isnan(x[:, 2])
    assert model.explain(x).contributions[missing, 0, 2].min() > 1.0


def test_constant_and_empty_columns_and_few_rows() -> None:
    x = np.column_stack([np.ones(6), np.full(6, np.nan), np.arange(6.0)])
    model = FedMinMaxClassifier().fit(x, [0, 0, 0, 1, 1, 1])
    assert model.predict(x).tolist() == [0, 0, 0, 1, 1, 1]
    explained = model.explain(x).contributions
    np.testing.assert_allclose(explained[:, :, :2], 0.0, atol=1e-12)


def test_too_many_columns_and_other_models_are_refused() -> None:
    wide = np.random.default_rng(0).normal(size=(20, 2001))
    refusal = complaint_of(lambda: FedMinMaxClassifier().fit(wide, LABEL[:20]))
    assert "too few for 2,001 columns; give model='linear'" in refusal
    linear = FedMinMaxClassifier(model="linear").fit(X, LABEL)
    assert "explain is for additive models" in complaint_of(lambda: linear.explain(X))


def test_a_monotone_effect_goes_only_up_everywhere() -> None:
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": generator.uniform(0, 10, 2000).round(2),
            "dose": generator.normal(size=2000),
            "ward": generator.choice(list("abc"), 2000),
        }
    )
    frame.loc[generator.random(2000) < 0.05, "age"] = np.nan
    risk = np.sin(frame["age"].fillna(3)) + 0.2 * frame["age"].fillna(0) + frame["dose"]
    y = np.where(risk + generator.normal(size=2000) > 1.0, "yes", "no")
    grid = pd.DataFrame({"age": np.linspace(-5, 15, 2001), "dose": 0.3, "ward": "a"})
    for direction, sign in (("up", 1), ("down", -1)):
        model = FedMinMaxClassifier(monotone={"age": direction}, random_state=0)
        model.fit(frame, y, sensitive_features=frame["ward"])
        scores = model.explain(grid).score[:, 0]
        assert (sign * np.diff(scores)).min() >= 0.0
        assert model.certificate_.gap <= 1e-4
        assert not any(
            "age and" in name or "and age" in name for name in model.encoder_.block_names
        )
    free = FedMinMaxClassifier(random_state=0).fit(frame, y, sensitive_features=frame["ward"])
    assert np.diff(free.explain(grid).score[:, 0]).min() < -0.01


def test_a_monotone_regression_of_a_table_without_names() -> None:
    generator = np.random.default_rng(1)
    x = generator.normal(size=(500, 2))
    y = np.sin(3 * x[:, 0]) + x[:, 1] + 0.1 * generator.normal(size=500)
    model = FedMinMaxRegressor(monotone={0: "down"}).fit(x, y)
    grid = np.c_[np.linspace(-4, 4, 500), np.zeros(500)]
    assert np.diff(model.predict(grid)).max() <= 0.0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"monotone": {"aeg": "up"}}, "'aeg'.*did you mean 'age'"),
        ({"monotone": {"ward": "up"}}, "'ward'.*text or categories"),
        ({"monotone": {"age": "upwards"}}, "'up' or 'down'"),
        ({"monotone": {"age": "up"}, "model": "linear"}, "monotone.*additive"),
        ({"monotone": {"age": "up"}, "model": "additive", "learning_rate": 0.1}, "FedMinMax does"),
        ({"monotone": {"age": "up"}, "method": FedSRCVaR()}, "FedSRCVaR .*does not use; give"),
    ],
)
def test_wrong_monotone_columns_are_refused(settings: dict[str, Any], words: str) -> None:
    frame = pd.DataFrame({"age": [1.0, 2.0, 3.0, 4.0], "ward": ["a", "b", "a", "b"]})
    with pytest.raises(InputError, match=words):
        FedMinMaxClassifier(**settings).fit(frame, [0, 0, 1, 1])


def test_three_classes_have_no_monotone_score() -> None:
    frame = pd.DataFrame({"age": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]})
    with pytest.raises(InputError, match="3 classes"):
        FedMinMaxClassifier(monotone={"age": "up"}).fit(frame, [0, 1, 2, 0, 1, 2])


@pytest.mark.slow
def test_a_straight_line_among_many_columns_is_as_fine_as_its_values() -> None:
    """With a level for each of its few effects it would be a staircase: 1/64 of the variance."""
    x = np.random.default_rng(5).random((400, 130))
    y = x[:, 0] - x[:, 1]
    model = FedMinMaxRegressor(pairs=0).fit(x[:300], y[:300], sensitive_features=SEX[:300])
    assert max(len(column.nodes) for column in model.encoder_.columns) == 8
    left = np.square(model.predict(x[300:]) - y[300:]).mean() / y.var()
    assert left < 0.003
