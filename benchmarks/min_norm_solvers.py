"""Why FedMGDA+'s quadratic programme has its own solver: accuracy and time compared with scipy's.

Random unit updates of 40 holders; the duality gap bounds how far a solution is from the optimum.
For minimise |sum lambda d|^2 over a box on the simplex, the gap of lambda is
2 (<lambda, G lambda> - min_mu <mu, G lambda>), with mu over the same box.

    python -m benchmarks.min_norm_solvers
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import LinearConstraint, minimize

from fedminmax.core.simplex import min_norm_weights

Array = NDArray[np.float64]
Solver = Callable[[Array, Array, float], Array]


def own(gram: Array, centre: Array, radius: float) -> Array:
    """Solve by the library's active-set method."""
    weights = min_norm_weights(torch.from_numpy(gram), torch.from_numpy(centre), radius)
    return np.array(weights.tolist())


def slsqp(gram: Array, centre: Array, radius: float) -> Array:
    """Solve by scipy's sequential quadratic programming, with its tightest tolerance."""
    bounds = [(max(0.0, c - radius), min(1.0, c + radius)) for c in centre.tolist()]

    def squared_length(weights: Array) -> float:
        return float(weights @ gram @ weights)

    def slopes(weights: Array) -> Array:
        return 2.0 * gram @ weights

    found = minimize(
        squared_length,
        centre,
        jac=slopes,
        bounds=bounds,
        constraints=LinearConstraint(np.ones((1, len(centre))), 1.0, 1.0),
        method="SLSQP",
        options={"ftol": 1e-16, "maxiter": 1000},
    )
    return np.asarray(found.x)


def duality_gap(gram: Array, centre: Array, radius: float, weights: Array) -> float:
    """Return an upper bound on the distance from the optimum; infeasibility counts fully."""
    low, high = np.maximum(0.0, centre - radius), np.minimum(1.0, centre + radius)
    slopes = gram @ weights
    best, left = low.copy(), 1.0 - low.sum()
    for k in np.argsort(slopes):  # the linear programme over a box on the simplex is greedy
        step = min(high[k] - low[k], left)
        best[k] += step
        left -= step
    outside = max(0.0, float((low - weights).max()), float((weights - high).max()))
    return 2.0 * float(weights @ slopes - best @ slopes) + abs(float(weights.sum()) - 1.0) + outside


def problem(rng: np.random.Generator, holders: int, dimension: int) -> Array:
    """Return the inner products of unit updates that share a direction."""
    updates = rng.normal(size=(holders, dimension)) + 2.0 * rng.normal(size=dimension)
    updates /= np.linalg.norm(updates, axis=1, keepdims=True)
    gram: Array = updates @ updates.T
    return gram


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=60)
    parser.add_argument("--holders", type=int, default=40)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    centre = np.full(options.holders, 1.0 / options.holders)
    print(f"{'solver':<8}{'updates':<10}{'radius':>7}{'median ms':>11}{'largest gap':>13}")
    for dimension, name in ((1000, "long"), (10, "singular")):
        for radius in (0.01, 0.1, 1.0):
            grams = [problem(rng, options.holders, dimension) for _ in range(options.problems)]
            for label, solver in (("own", own), ("SLSQP", slsqp)):
                times, gaps = measure(solver, grams, centre, radius)
                print(f"{label:<8}{name:<10}{radius:>7g}{1000 * times:>11.2f}{gaps:>13.1e}")


def measure(
    solver: Solver, grams: list[Array], centre: Array, radius: float
) -> tuple[float, float]:
    """Return the median time and the largest duality gap."""
    solver(grams[0], centre, radius)
    times, gaps = [], []
    for gram in grams:
        start = time.perf_counter()
        weights = solver(gram, centre, radius)
        times.append(time.perf_counter() - start)
        gaps.append(duality_gap(gram, centre, radius, weights))
    return statistics.median(times), max(gaps)


if __name__ == "__main__":
    main()
