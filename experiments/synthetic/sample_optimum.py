"""The exact optimum of each method's objective on the rows that it was given.

A method cannot be closer to the population optimum than the optimum of its own sample. For
models that give one probability on each side of 0 (which contain the population optimum), the
empirical risk of any set of rows is a quadratic in the two probabilities, so minimax over groups
(FedMinMax) and over sites (AFL) are small convex programs, solved here by scipy; FedAvg's
objective is a mean. Printed: the population risks of the three optima, per fold.

    python -m experiments.synthetic.sample_optimum experiments/synthetic/full
    python -m experiments.synthetic.sample_optimum experiments/synthetic/full --rows 200000

The second form computes the same for another number of rows.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from scipy import optimize
from torch import Tensor

from fedminmax.core.examples import Examples
from fedminmax.data.partition import Setting, partition_by_setting
from fedminmax.data.synthetic import GroupRisks, risks_of_sides
from fedminmax.studies.study import Study, StudyConfig, fold_rows, synthetic_study

Vector = np.ndarray[tuple[int], np.dtype[np.float64]]


def side_statistics(rows: Examples, part: Tensor) -> list[tuple[float, float]]:
    """For either side of 0: the share of these rows there, and their mean of y."""
    x, y = rows.x[part, 0], rows.y[part].double()
    sides = (x <= 0, x > 0)
    return [
        (float(side.double().mean()), float(y[side].mean()) if bool(side.any()) else 0.5)
        for side in sides
    ]


def empirical_risks(statistics: list[list[tuple[float, float]]], sides: Vector) -> Vector:
    """Empirical Brier risk of each set of rows for probabilities (low, high)."""
    return np.array(
        [
            sum(
                share * 2 * ((float(predicted) - mean) ** 2 + mean * (1 - mean))
                for (share, mean), predicted in zip(one, sides, strict=True)
            )
            for one in statistics
        ]
    )


def minimax_sides(statistics: list[list[tuple[float, float]]]) -> tuple[float, float]:
    """Minimise the highest of these empirical risks: least t with every risk at most t."""

    def room(variables: Vector) -> Vector:
        return float(variables[2]) - empirical_risks(statistics, variables[:2])

    def height(variables: Vector) -> float:
        return float(variables[2])

    found = optimize.minimize(
        height,
        [0.3, 0.6, 0.7],
        method="SLSQP",
        constraints=[optimize.NonlinearConstraint(room, 0.0, np.inf)],
        options={"maxiter": 500, "ftol": 1e-12},
    )
    sides = float(found.x[0]), float(found.x[1])
    if (distance := distance_from_optimal(statistics, found.x[:2])) > 1e-3:
        raise RuntimeError(f"not an optimum (residual {distance:.1e}): {found.message}")
    return sides


def distance_from_optimal(statistics: list[list[tuple[float, float]]], sides: Vector) -> float:
    """Residual of the optimality condition: 0 is a convex mixture of the highest risks' gradients.

    The solver's own flag does not decide: it gives up near optima of many almost equal risks.
    """
    risks = empirical_risks(statistics, sides)
    highest = np.flatnonzero(risks > risks.max() - 1e-5)
    gradients = [
        [
            4 * share * (float(predicted) - mean)
            for (share, mean), predicted in zip(statistics[number], sides, strict=True)
        ]
        for number in highest
    ]
    conditions = np.vstack([np.array(gradients).T, np.ones(len(highest))])
    return float(optimize.nnls(conditions, np.array([0.0, 0.0, 1.0]))[1])


def optima_of_fold(study: Study, fold: int) -> dict[str, GroupRisks]:
    """Population risks of the sample optima of the three kinds of objective."""
    rows = fold_rows(study.config, fold, study.fold_seed(fold))
    everyone = torch.arange(len(rows))
    (_, low), (_, high) = side_statistics(rows, everyone)
    optima = {"FedAvg (mean)": risks_of_sides(low, high)}
    by_group = [side_statistics(rows, (rows.group == a).nonzero().squeeze(1)) for a in (0, 1)]
    optima["FedMinMax (groups)"] = risks_of_sides(*minimax_sides(by_group))
    for setting in (Setting.ESG, Setting.SSG):
        parts = partition_by_setting(setting, rows.group, study.config.sites, study.fold_seed(fold))
        by_site = [side_statistics(rows, part) for part in parts]
        optima[f"AFL {setting.value} (sites)"] = risks_of_sides(*minimax_sides(by_site))
    return optima


def main() -> None:
    """Print the optima of three folds of the configuration in a results folder."""
    parser = argparse.ArgumentParser(description="Exact optima of the samples of an experiment.")
    parser.add_argument("folder", type=Path, help="results folder, for its configuration")
    parser.add_argument("--rows", type=int, help="ask for another number of rows")
    options = parser.parse_args()
    content = json.loads((options.folder / "results.json").read_text())["config"]
    config = StudyConfig(
        options.rows or content["rows"],
        content["sites"],
        model=content["model"],
        folds_by=content["folds_by"],
        folds_in_all=content["folds_in_all"],
        seed=content["seed"],
    )
    folds = [optima_of_fold(synthetic_study(config), fold) for fold in range(3)]
    print(f"{config.rows} rows, {config.sites} sites; population risks (worst, best)")
    for name in folds[0]:
        worst = [optima[name].worst for optima in folds]
        best = [optima[name].best for optima in folds]
        shown = "  ".join(f"({w:.4f}, {b:.4f})" for w, b in zip(worst, best, strict=True))
        print(f"{name:22} mean ({np.mean(worst):.4f}, {np.mean(best):.4f})   folds {shown}")


if __name__ == "__main__":
    main()
