"""The hearts on the test records of others: our models beside what is published for them.

    python -m experiments.real_sites.published --data FOLDER

FLamby (du Terrail et al., NeurIPS 2022 Datasets and Benchmarks) keeps 740 of the 920 patients, ten
of the thirteen columns, and a fixed third of each hospital for the test; the example of NVIDIA
FLARE (``hello-lr``, Newton-Raphson logistic regression) takes its records from there. ``PUBLISHED``
has the accuracies that both print. Ours are trained on the same records and columns; a logistic
regression of scikit-learn on the pooled records says how much of a difference is the split.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from experiments.real_sites.run import problem_of, trained
from experiments.table_models.tables import Problem
from fedminmax.core.text import markdown_table

DROPPED = ("slope", "ca", "thal")
TRAIN_SHARE, SEED, FEW = 0.66, 43, 2
HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
# Accuracies of the four hospitals: owkin/FLamby, flamby/results/results_benchmark_fed_heart_disease
# .csv (one run of 100 rounds), and NVIDIA/NVFlare, examples/hello-world/hello-lr/README.md.
PUBLISHED = {
    "NVIDIA FLARE, Newton-Raphson": (0.7500, 0.7528, 0.7500, 0.6000),
    "FLamby, pooled training": (0.7596, 0.7978, 0.8125, 0.7556),
    "FLamby, FedAvg": (0.6538, 0.7640, 0.0625, 0.6444),
    "FLamby, SCAFFOLD": (0.6250, 0.7753, 0.5625, 0.7556),
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with heart")
    problem = of_flamby(parser.parse_args().data)
    train, test = split_of_flamby(problem)
    site = problem.frame["site"].to_numpy()[test]
    counts = [int((site == name).sum()) for name in HOSPITALS]
    lines = {name: list(own) for name, own in PUBLISHED.items()}
    for name, chances in _answers(problem, train, test):
        right = (chances > 0.5) == (problem.target[test] == 1)
        lines[name] = [float(right[site == own].mean()) for own in HOSPITALS]
    cells = [
        [name, *(f"{value:.3f}" for value in own), f"{np.average(own, weights=counts):.3f}"]
        for name, own in lines.items()
    ]
    heads = [f"{name} ({count})" for name, count in zip(HOSPITALS, counts, strict=True)]
    print(markdown_table(["accuracy", *heads, f"all ({sum(counts)})"], cells))


def of_flamby(folder: Path) -> Problem:
    """Keep FLamby's columns, and the patients who have them all; 0 is a cholesterol there."""
    problem = problem_of("heart", folder)
    files = sorted((folder / "heart").glob("processed.*.data"))
    read = [pl.read_csv(file, null_values=["?", ""], infer_schema=False) for file in files]
    chol = pl.concat(read)["chol"].cast(pl.Float64)
    kept = replace(
        problem,
        frame=problem.frame.with_columns(chol=chol),
        numbers=tuple(name for name in problem.numbers if name not in DROPPED),
        categories=tuple(name for name in problem.categories if name not in DROPPED),
    )
    return replace(kept, frame=kept.frame.drop_nulls([*kept.numbers, *kept.categories]))


def split_of_flamby(problem: Problem) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw each hospital's test records as FLamby does, in the order of its file."""
    site, target = problem.frame["site"].to_numpy(), problem.target
    parts = []
    for name in HOSPITALS:
        own = np.flatnonzero(site == name)
        labels = target[own]
        both = min((labels == 0).sum(), (labels == 1).sum()) > FEW
        parts.append(
            train_test_split(
                own,
                test_size=1.0 - TRAIN_SHARE,
                train_size=TRAIN_SHARE,
                random_state=SEED,
                stratify=labels if both else None,
            )
        )
    train, test = (np.concatenate(own) for own in zip(*parts, strict=True))
    return train, test


def _answers(
    problem: Problem, train: NDArray[np.int64], test: NDArray[np.int64]
) -> Iterator[tuple[str, NDArray[np.float64]]]:
    frame = problem.frame.select(*problem.numbers, *problem.categories)
    x = frame.to_dummies(problem.categories, drop_first=True).to_numpy().astype(np.float64)
    pooled = LogisticRegression(C=np.inf, solver="newton-cholesky")
    pooled.fit(x[train], problem.target[train])
    yield "pooled logistic regression, this split", pooled.predict_proba(x[test])[:, 1]
    for name in ("default", "exact minimax"):
        for answers in trained(problem, name, train, test, 0):
            yield f"fedminmax, {answers.name}", answers.chances


if __name__ == "__main__":
    main()
