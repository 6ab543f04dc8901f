"""Train our models as a user would: a file of records, a configuration, `train_tables`.

Every kind has the product's defaults. A training gives two models: the minimax one, and its
baseline, the plain model of the same kind, which minimises the mean.
"""

import json
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from experiments.table_models.tables import Problem
from fedminmax.exports.saved_model import SavedModel, load_model
from fedminmax.findings.records import Results
from fedminmax.runs.folder import BASELINE_FOLDER
from fedminmax.runs.train import train_tables

Numbers = NDArray[np.float64]
Positions = NDArray[np.int64]
LINEAR, ADDITIVE, NETWORK = "logistic", "additive", "mlp"
# An additive model that knows where a record is from, as a site that trains alone does.
WITH_SITE = "additive with site"
KINDS = (LINEAR, ADDITIVE, NETWORK, WITH_SITE)
HIDDEN = "hidden = [64, 64]\n"


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A model's answers to the test records, and what is said about its training."""

    name: str
    answers: Numbers
    about: dict[str, Any]


def configuration(problem: Problem, kind: str, seed: int) -> str:
    """Return the text of `fedminmax.toml` for `train.csv`."""
    task = "classification" if problem.classifies else "regression"
    written = "linear" if kind == LINEAR and not problem.classifies else kind
    lines = [
        "[data]",
        'target = "target"',
        f'task = "{task}"',
        'classes = ["0", "1"]' if problem.classifies else "",
        'file = "train.csv"',
        'site_column = "site"',
        "held_out = 0.0",
        f"seed = {seed}",
        "[groups]",
        'columns = ["group"]',
        "[model]",
        f'kind = "{written}"',
        HIDDEN if kind == NETWORK else "",
    ]
    for name in problem.numbers:
        lines += [f"[features.{json.dumps(name)}]", 'kind = "numeric"']
    for name in problem.categories:
        values = problem.frame[name].drop_nulls().unique().sort().to_list()
        lines += [f"[features.{json.dumps(name)}]", 'kind = "category"']
        lines += [f"categories = {json.dumps(values)}"]
    return "\n".join(lines) + "\n"


def train_ours(
    problem: Problem, kind: str, train: Positions, test: Positions, seed: int
) -> Iterator[TrainedModel]:
    """Train a kind of model and its baseline."""
    name = kind
    if kind == WITH_SITE:
        kind, problem = ADDITIVE, _with_site(problem)
    unseen = problem.frame[test].drop("target")
    with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = Path(place)
        problem.frame[train].write_csv(folder / "train.csv")
        config = folder / "fedminmax.toml"
        config.write_text(configuration(problem, kind, seed), encoding="utf-8")
        start = time.perf_counter()
        trained = train_tables(config, folder=folder / "run")
        both = time.perf_counter() - start
        plain = load_model(folder / "run" / BASELINE_FOLDER)
        if trained.baseline is None:
            raise ValueError("the configuration has no baseline")
        about = {"seconds_with_baseline": round(both, 3)}
        yield _answered(name, trained.model, trained.results, unseen, problem, about)
        yield _answered(f"{name}, plain", plain, trained.baseline, unseen, problem, about)


def _with_site(problem: Problem) -> Problem:
    return replace(
        problem,
        frame=problem.frame.with_columns(own_site=pl.col("site")),
        categories=(*problem.categories, "own_site"),
    )


def _answered(
    name: str,
    model: SavedModel,
    results: Results,
    unseen: Any,
    problem: Problem,
    about: dict[str, Any],
) -> TrainedModel:
    answers = model.predict_proba(unseen)[:, 1] if problem.classifies else model.predict(unseen)
    return TrainedModel(
        name,
        np.asarray(answers, dtype=np.float64),
        about
        | {
            "rounds": results.method.rounds,
            "parameters": sum(own.numel() for own in model.model.parameters()),
            "gap": results.gap_left,
        },
    )
