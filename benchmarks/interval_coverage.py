"""How often the intervals of `metrics/intervals.py` cover the true mean, by simulation.

    python -m benchmarks.interval_coverage > benchmarks/results/interval_coverage.md

Test rows are drawn from distributions whose mean is known: 0/1 errors, Brier scores that are mostly
near 0 and rarely large, differences between two models of which most are tiny and some large,
squares of errors with light and with heavy tails. For comparison there are two other intervals:
percentiles of a bootstrap, which it replaced, and Student's t.
"""

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedminmax.metrics.intervals import Bounds, Estimate, Scored, difference, mean_interval

Rows = NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, int]], Rows]

ROWS = (1, 2, 5, 12, 50, 60, 300)
TRIALS = 10_000
BOOTSTRAP_TRIALS = 1_000
RESAMPLES = 400
SHARE = Bounds(0.0, 1.0)
BRIER = Bounds(0.0, 2.0)
ERROR = Bounds(0.0, math.inf)


@dataclass(frozen=True)
class Distribution:
    """Rows' scores: how they are drawn, between which bounds, and their true mean."""

    name: str
    draw: Draw
    bounds: Bounds
    mean: float


def _one_of(large: float, share: float, small: float) -> Draw:
    return lambda generator, shape: np.where(generator.random(shape) < share, large, small)


def _brier(generator: np.random.Generator, shape: tuple[int, int]) -> Rows:
    """Brier scores of two classes: mostly certain and right, sometimes certain and wrong."""
    sure = generator.beta(12.0, 0.6, shape)
    right = generator.random(shape) < sure
    return 2.0 * np.where(right, 1.0 - sure, sure) ** 2


def _brier_mean() -> float:
    """E 2 (p (1 - p)^2 + (1 - p) p^2) = 2 E p (1 - p) = 2 a b / ((a + b) (a + b + 1))."""
    a, b = 12.0, 0.6
    return 2.0 * a * b / ((a + b) * (a + b + 1.0))


def _changes(share: float, most: float) -> Draw:
    """Differences: a share is anywhere from 0 to ``most``, the others are tiny."""

    def draw(generator: np.random.Generator, shape: tuple[int, int]) -> Rows:
        large = generator.random(shape) < share
        tiny = 0.01 * generator.standard_normal(shape)
        return np.where(large, most * generator.random(shape), tiny)

    return draw


def _squares_of_t5(generator: np.random.Generator, shape: tuple[int, int]) -> Rows:
    return np.square(generator.standard_t(5.0, shape))


DISTRIBUTIONS = (
    *(Distribution(f"0/1, share {p:g}", _one_of(1.0, p, 0.0), SHARE, p) for p in (0.02, 0.1, 0.5)),
    Distribution("Brier, sure and mostly right", _brier, BRIER, _brier_mean()),
    *(
        Distribution(
            f"Brier 0.005, with {p:g} 1.8", _one_of(1.8, p, 0.005), BRIER, 1.8 * p + 0.005 * (1 - p)
        )
        for p in (0.02, 0.1)
    ),
    Distribution("change, 0.1 up to 0.8", _changes(0.1, 0.8), BRIER.of_differences, 0.04),
    Distribution("change, 0.02 down to -1.8", _changes(0.02, -1.8), BRIER.of_differences, -0.018),
    Distribution(
        "squares of normal errors", lambda g, shape: np.square(g.normal(size=shape)), ERROR, 1.0
    ),
    Distribution(
        "squares of Laplace errors", lambda g, shape: np.square(g.laplace(size=shape)), ERROR, 2.0
    ),
    Distribution("squares of t errors, 5 degrees", _squares_of_t5, ERROR, 5.0 / 3.0),
    Distribution(
        "lognormal, deviation 1.5",
        lambda g, shape: g.lognormal(0.0, 1.5, shape),
        ERROR,
        math.exp(1.5**2 / 2.0),
    ),
)


def coverage(one: Distribution, rows: int, trials: int, seed: int = 0) -> float | None:
    """Return the share of intervals that cover the mean; None if there are no intervals."""
    found = _intervals(_drawn(one, rows, trials, seed), one.bounds)
    if math.isnan(found[0].low):
        return None
    return float(np.mean([own.low <= one.mean <= own.high for own in found]))


def coverage_of_difference(
    one: Distribution, rows: tuple[int, int], trials: int, seed: int = 0
) -> float:
    """Return how often the interval of a difference between two groups covers its true value, 0."""
    first, second = (
        _intervals(_drawn(one, size, trials, seed + place), one.bounds)
        for place, size in enumerate(rows)
    )
    found = map(difference, first, second)
    return float(np.mean([own.low <= 0.0 <= own.high for own in found]))


def _drawn(one: Distribution, rows: int, trials: int, seed: int) -> Rows:
    return one.draw(np.random.default_rng([seed, rows]), (trials, rows))


def _intervals(rows: Rows, bounds: Bounds) -> list[Estimate]:
    means, squares = rows.mean(axis=1).tolist(), np.square(rows).sum(axis=1).tolist()
    return [
        mean_interval(Scored(rows.shape[1], mean, square), bounds)
        for mean, square in zip(means, squares, strict=True)
    ]


def _student(one: Distribution, rows: int) -> float:
    """Plain t: no made-up row."""
    from scipy.stats import t

    drawn = _drawn(one, rows, TRIALS, 0)
    half = t.ppf(0.975, rows - 1) * drawn.std(axis=1, ddof=1) / math.sqrt(rows)
    return float((np.abs(drawn.mean(axis=1) - one.mean) <= half).mean())


def _bootstrap(one: Distribution, rows: int) -> float:
    """Percentiles of resampled means."""
    generator = np.random.default_rng([1, rows])
    covered = 0
    for own in _drawn(one, rows, BOOTSTRAP_TRIALS, 0):
        means = generator.choice(own, (RESAMPLES, rows)).mean(axis=1)
        low, high = np.quantile(means, [0.025, 0.975])
        covered += low <= one.mean <= high
    return covered / BOOTSTRAP_TRIALS


def _table(title: str, of: Callable[[Distribution, int], float | None]) -> Iterator[str]:
    yield f"\n{title}\n"
    yield f"| scores | {' | '.join(map(str, ROWS))} |"
    yield "|---" * (len(ROWS) + 1) + "|"
    for one in DISTRIBUTIONS:
        shares = [of(one, rows) for rows in ROWS]
        cells = ["none" if share is None else f"{share:.3f}" for share in shares]
        yield f"| {one.name} | {' | '.join(cells)} |"


def main() -> None:
    """Print the tables."""
    print("# Coverage of the 95% intervals by number of rows")
    print(f"\n`python -m benchmarks.interval_coverage`: {TRIALS:,} test sets each, so that a share")
    print("is known to about 0.004 (bootstrap: 1,000 test sets, 0.014). 'none': no interval.")
    ours = "Ours: Student's t with a made-up row at the bound"
    print("\n".join(_table(ours, lambda one, rows: coverage(one, rows, TRIALS))))
    print("\nDifference between two groups of 60 and 300 rows with the same distribution\n")
    print("| scores | coverage |\n|---|---|")
    for one in DISTRIBUTIONS:
        if one.bounds.lower == 0.0:
            print(f"| {one.name} | {coverage_of_difference(one, (60, 300), TRIALS):.3f} |")
    sys.stdout.flush()
    plain = "Plain Student's t"
    print("\n".join(_table(plain, lambda one, rows: _student(one, rows) if rows > 1 else None)))
    print("\n".join(_table("Percentiles of a bootstrap, as before", _bootstrap)))


if __name__ == "__main__":
    main()
