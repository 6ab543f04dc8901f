"""Boosted trees with their usual settings, on pooled records and at each site alone.

    pip install -r experiments/table_models/requirements.txt

A peer is a function from a problem, its training and test records and a seed to a number for each
test record: the probability of class 1, or the quantity. Every peer is told which columns are
categories, if it can take that many of them. Early stopping keeps 10% of the training records.
"""

from collections.abc import Callable
from typing import Any

import lightgbm
import numpy as np
import xgboost
from interpret.glassbox import ExplainableBoostingClassifier, ExplainableBoostingRegressor
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.model_selection import train_test_split

from experiments.table_models.tables import Problem

Numbers = NDArray[np.float64]
Positions = NDArray[np.int64]
Peer = Callable[[Problem, Positions, Positions, int], Numbers]
THREADS = 1
# HistGradientBoosting takes no more categories in a column; a column of more is an ordered one.
MOST_CATEGORIES = 255
# With fewer training records the last tree is the best guess: nobody can spare validation records.
LEAST_TO_STOP_EARLY = 1_000
PATIENCE = 50


def codes(problem: Problem) -> Numbers:
    """Return numbers as they are, and categories as numbers of their sorted values."""
    columns = [problem.frame[name].to_numpy().astype(np.float64) for name in problem.numbers]
    for name in problem.categories:
        values = problem.frame[name]
        numbers = values.rank("dense").cast(float) - 1
        columns.append(numbers.to_numpy().astype(np.float64))
    return np.stack(columns, axis=1)


def category_positions(problem: Problem) -> list[int]:
    """Return which columns of ``codes`` are categories."""
    return list(range(len(problem.numbers), len(problem.numbers) + len(problem.categories)))


def fitted(problem: Problem, model: Any, data: tuple[Any, Any, Any], **settings: Any) -> Numbers:
    """Fit and return the probability of class 1, or the quantity."""
    x, y, unseen = data
    model.fit(x, y, **settings)
    answers = model.predict_proba(unseen)[:, 1] if problem.classifies else model.predict(unseen)
    return np.asarray(answers, dtype=np.float64)


def hist_gradient_boosting(
    problem: Problem, train: Positions, test: Positions, seed: int
) -> Numbers:
    """scikit-learn's defaults: 100 trees, early stopping above 10,000 records."""
    x = codes(problem)
    positions = [own for own in category_positions(problem) if x[:, own].max() < MOST_CATEGORIES]
    kind = HistGradientBoostingClassifier if problem.classifies else HistGradientBoostingRegressor
    model = kind(categorical_features=positions, random_state=seed)
    return fitted(problem, model, (x[train], problem.target[train], x[test]))


def lightgbm_trees(trees: int | None) -> Peer:
    """Return LightGBM with so many trees and its defaults, or with early stopping (None)."""

    def fit(problem: Problem, train: Positions, test: Positions, seed: int) -> Numbers:
        x, y = codes(problem), problem.target
        settings: dict[str, Any] = {"random_state": seed, "verbose": -1, "n_jobs": THREADS}
        kind = lightgbm.LGBMClassifier if problem.classifies else lightgbm.LGBMRegressor
        categories = {"categorical_feature": category_positions(problem)}
        if trees is not None or len(train) < LEAST_TO_STOP_EARLY:
            model = kind(n_estimators=trees or 100, **settings)
            return fitted(problem, model, (x[train], y[train], x[test]), **categories)
        stays, stops = stopping_split(problem, train, seed)
        model = kind(n_estimators=2_000, **settings)
        stop = lightgbm.early_stopping(PATIENCE, verbose=False)
        data = (x[stays], y[stays], x[test])
        watched = {"eval_set": [(x[stops], y[stops])], "callbacks": [stop]}
        return fitted(problem, model, data, **watched, **categories)

    return fit


def xgboost_stopped(problem: Problem, train: Positions, test: Positions, seed: int) -> Numbers:
    """XGBoost with early stopping, a rate of 0.1 and its other defaults."""
    x, y = codes(problem), problem.target
    kind = xgboost.XGBClassifier if problem.classifies else xgboost.XGBRegressor
    categories = set(category_positions(problem))
    settings: dict[str, Any] = {
        "learning_rate": 0.1,
        "random_state": seed,
        "n_jobs": THREADS,
        "enable_categorical": True,
        "feature_types": ["c" if own in categories else "q" for own in range(x.shape[1])],
    }
    if len(train) < LEAST_TO_STOP_EARLY:
        return fitted(problem, kind(**settings), (x[train], y[train], x[test]))
    stays, stops = stopping_split(problem, train, seed)
    model = kind(n_estimators=2_000, early_stopping_rounds=PATIENCE, **settings)
    data = (x[stays], y[stays], x[test])
    return fitted(problem, model, data, eval_set=[(x[stops], y[stops])], verbose=False)


def explainable_boosting(problem: Problem, train: Positions, test: Positions, seed: int) -> Numbers:
    """EBM of the package interpret, with its defaults (14 bags)."""
    x = codes(problem)
    kinds = ["continuous"] * len(problem.numbers) + ["nominal"] * len(problem.categories)
    kind = ExplainableBoostingClassifier if problem.classifies else ExplainableBoostingRegressor
    model = kind(feature_types=kinds, random_state=seed, n_jobs=THREADS)
    return fitted(problem, model, (x[train], problem.target[train], x[test]))


def stopping_split(problem: Problem, train: Positions, seed: int) -> tuple[Positions, Positions]:
    """Split the training records: to fit the trees, and to stop early."""
    strata = problem.target[train] if problem.classifies else None
    stays, stops = train_test_split(train, test_size=0.1, random_state=seed, stratify=strata)
    return stays, stops


def each_site_alone(problem: Problem, train: Positions, test: Positions, seed: int) -> Numbers:
    """LightGBM with early stopping at each site; a site answers its test records."""
    site = problem.frame["site"].to_numpy()
    answers = np.zeros(len(test))
    for name in np.unique(site[test]):
        kept = train[site[train] == name]
        asked = site[test] == name
        if len(kept) < 2 or len(np.unique(problem.target[kept])) < 2:
            # A site without records, or with one class, can only answer with a mean.
            answers[asked] = problem.target[kept if len(kept) else train].mean()
        else:
            answers[asked] = STOPPED(problem, kept, test[asked], seed)
    return answers


STOPPED = lightgbm_trees(None)
PEERS: dict[str, Peer] = {
    "HistGradientBoosting": hist_gradient_boosting,
    "LightGBM": STOPPED,
    "LightGBM, 400 trees": lightgbm_trees(400),
    "XGBoost": xgboost_stopped,
    "EBM": explainable_boosting,
    "each site alone": each_site_alone,
}
