"""Compare linear, spline, chosen and network models on tables of many shapes.

    python -m experiments.table_models.compare experiments/table_models/risks.jsonl

Of each table 70 % of the rows are trained on, and the others tested on; every seed has another
split (synthetic tables: other rows, too). All settings are defaults, the same for all tables, but
that all classifiers have the cross-entropy loss, so that their risks can be compared. A finished
comparison is not repeated; a table of means is written beside the file.
"""

import argparse
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.table_models.tables import NAMES, PUBLISHED, Problem, table
from fedminmax import FedMinMaxClassifier, FedMinMaxRegressor
from fedminmax.core.files import write_text

MODELS = ("linear", "spline", "auto", "mlp")
SEEDS, ADULT_SEEDS = 5, 2
# Test risks of smaller groups are chance.
LEAST_ROWS = 30
KEYS = ["table", "seed", "model"]


def measured(problem: Problem, model: str, seed: int) -> dict[str, Any]:
    """Train on 70 % of the rows and return the risks of the others."""
    places = np.random.default_rng(seed).permutation(len(problem.y))
    train, test = np.split(places, [int(0.7 * len(places))])
    settings: dict[str, Any] = {"model": model, "random_state": seed}
    if model == "mlp":
        settings["hidden"] = (64, 64)
    y = problem.y
    estimator: Any = FedMinMaxRegressor(**settings)
    if problem.classifies:
        estimator = FedMinMaxClassifier(loss="cross_entropy", **settings)
    else:
        # In units of the variance, so that tables can be compared.
        y = (y - y[train].mean()) / y[train].std()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(problem.x[train], y[train], sensitive_features=problem.group[train])
    if problem.classifies:
        likely = estimator.predict_proba(problem.x[test])[np.arange(len(test)), y[test]]
        losses = -np.log(np.maximum(likely, 1e-12))
    else:
        losses = (estimator.predict(problem.x[test]) - y[test]) ** 2
    group = problem.group[test]
    risks = [
        float(losses[group == name].mean())
        for name in np.unique(group)
        if (group == name).sum() >= LEAST_ROWS
    ]
    decided = estimator.decided_model_
    return {
        "worst": max(risks),
        "mean": float(losses.mean()),
        "rounds": estimator.n_iter_,
        "columns": sum(weight.shape[1] for weight in _first_weights(estimator.model_)),
        "chosen": None if decided is None else decided.chosen,
    }


def _first_weights(model: Any) -> Iterator[Any]:
    yield next(parameter for parameter in model.parameters() if parameter.dim() == 2)


def main() -> None:
    """Compare what is not in the file yet, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, help="one line per training")
    file: Path = parser.parse_args().file
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    done = [json.loads(line) for line in lines]
    known = {tuple(entry[key] for key in KEYS) for entry in done}
    with file.open("a", encoding="utf-8") as out:
        for name in sorted(NAMES, key=lambda name: name == "adult"):
            for seed in range(ADULT_SEEDS if name == "adult" else SEEDS):
                problem = table(name, seed)
                for model in MODELS:
                    if (name, seed, model) not in known:
                        entry = {"table": name, "seed": seed, "model": model}
                        entry |= measured(problem, model, seed)
                        print(json.dumps(entry), file=out, flush=True)
                        done.append(entry)
    write_text(file.with_suffix(".md"), summary(done))


def summary(entries: list[dict[str, Any]]) -> str:
    """Return means over seeds as a table in Markdown."""
    frame = pd.DataFrame(entries)
    lines = [
        "| table | "
        + " | ".join(f"{model} worst (mean)" for model in MODELS)
        + " | chosen | rounds |",
        "|---" * (len(MODELS) + 3) + "|",
    ]
    for name in (*PUBLISHED, *(own for own in NAMES if own not in PUBLISHED)):
        own = frame[frame["table"] == name]
        means = own.groupby("model")[["worst", "mean", "rounds"]].mean()
        cells = [
            f"{means.loc[model, 'worst']:.4f} ({means.loc[model, 'mean']:.4f})" for model in MODELS
        ]
        chosen = own.loc[own["model"] == "auto", "chosen"]
        counts = f"spline {int((chosen == 'spline').sum())} of {len(chosen)}"
        rounds = ", ".join(
            f"{means.loc[model, 'rounds']:.0f}" for model in ("linear", "spline", "mlp")
        )
        lines.append(f"| {name} | {' | '.join(cells)} | {counts} | {rounds} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
