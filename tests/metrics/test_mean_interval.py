"""Intervals of means against known distributions, exact sums over outcomes, and arithmetic.

The worst of many groups, and the gap: covered as often as promised, seeded simulations.
"""

import math

import numpy as np
import pytest
from scipy.stats import binom, t

from benchmarks.interval_coverage import (
    DISTRIBUTIONS,
    Distribution,
    coverage,
    coverage_of_difference,
)
from fedminmax.metrics.by_group import metric_by_group
from fedminmax.metrics.intervals import (
    MIN_ROWS,
    Bounds,
    Estimate,
    Scored,
    difference,
    gap_of_means,
    highest_mean,
    lowest_mean,
    mean_interval,
)

SHARE, ERROR = Bounds(0.0, 1.0), Bounds(0.0, math.inf)
TRIALS = 1000
# Coverage may be 2% under 95%, and 1,000 trials know 93% to 0.0081: three of these.
LOWEST = 0.93 - 3 * 0.0081


@pytest.mark.parametrize("one", DISTRIBUTIONS, ids=lambda one: one.name)
def test_intervals_cover_the_true_mean(one: Distribution) -> None:
    for rows in (1, 2, 5, 12, 60, 300):
        found = coverage(one, rows, TRIALS)
        if found is None:
            assert rows < MIN_ROWS
            assert not one.bounds.known
        else:
            assert found >= LOWEST, rows


@pytest.mark.parametrize("one", DISTRIBUTIONS[:5], ids=lambda one: one.name)
def test_two_groups_that_are_alike_are_rarely_called_different(one: Distribution) -> None:
    assert coverage_of_difference(one, (60, 300), TRIALS) >= LOWEST


@pytest.mark.parametrize("rows", [1, 2, 5, 12, 60, 300])
def test_shares_are_covered_whatever_they_are(rows: int) -> None:
    """Exactly: the probability of each number of errors, added up where its interval covers."""
    found = [mean_interval(Scored(rows, k / rows, float(k)), SHARE) for k in range(rows + 1)]
    low, high = (np.array([getattr(one, end) for one in found]) for end in ("low", "high"))
    for share in np.linspace(0.001, 0.999, 333):
        covers = (low <= share) & (share <= high)
        assert binom.pmf(np.arange(rows + 1), rows, share)[covers].sum() >= 0.93


def test_it_is_students_interval_of_the_rows_and_one_more() -> None:
    """From the rows themselves, and a row of 2 for the upper end, of 0 for the lower one."""
    scores = np.random.default_rng(0).beta(0.3, 2.0, 25) * 2.0

    def end(made_up: float, sign: int) -> float:
        own = np.append(scores, made_up)
        error = own.std(ddof=1) / math.sqrt(len(own))
        return float(own.mean() + sign * t.ppf(0.975, len(scores) - 1) * error)

    found = mean_interval(Scored(25, scores.mean(), (scores**2).sum()), Bounds(0.0, 2.0))
    assert found.value == pytest.approx(scores.mean())
    assert found.high == pytest.approx(end(2.0, 1))
    assert found.low == pytest.approx(max(0.0, end(0.0, -1)))


def test_with_many_rows_it_is_students_interval() -> None:
    errors = np.random.default_rng(0).exponential(size=1_000_000)
    found = mean_interval(Scored(len(errors), errors.mean(), (errors**2).sum()), ERROR)
    half = 1.96 * errors.std() / 1000.0
    assert found.high - found.value == pytest.approx(half, rel=0.03)
    assert found.value - found.low == pytest.approx(half, rel=0.03)


def test_few_rows_say_little() -> None:
    """One row says nothing, and three errors among three rows leave most of the range."""
    assert mean_interval(Scored(1, 0.037, 0.037**2), Bounds(0.0, 2.0)) == Estimate(0.037, 0.0, 2.0)
    three = mean_interval(Scored(3, 1.0, 3.0), SHARE)
    assert three.high == 1.0
    assert three.low < 0.3
    few = mean_interval(Scored(MIN_ROWS - 1, 4.0, 900.0), ERROR)
    assert few.value == 4.0
    assert math.isnan(few.low)
    assert math.isnan(few.high)
    assert math.isnan(mean_interval(Scored.of_sums(0, 0.0, 0.0), SHARE).value)


def test_another_unit_or_origin_moves_the_ends_alike() -> None:
    anything = Bounds(-math.inf, math.inf)
    errors = np.random.default_rng(1).normal(2.0, 3.0, 80)

    def of(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Estimate:
        return mean_interval(Scored(80, values.mean(), (values**2).sum()), anything)

    here, there = of(errors), of(1e6 * errors - 5e6)
    for end in ("value", "low", "high"):
        assert getattr(there, end) == pytest.approx(1e6 * getattr(here, end) - 5e6)


def test_rows_that_are_all_alike_have_an_interval_of_rounding_at_the_most() -> None:
    found = mean_interval(Scored(100, 0.1, 100 * 0.1**2 * (1 - 1e-15)), ERROR)
    assert found.high == pytest.approx(0.1, abs=1e-6)


def test_the_published_example_of_squaring_and_adding() -> None:
    """Newcombe 1998, Table II, method 10: 56/70 against 48/80 gives 0.0524 to 0.3339."""

    def wilson(successes: int, rows: int) -> Estimate:
        z, share = 1.959964, successes / rows
        middle = (share + z**2 / (2 * rows)) / (1 + z**2 / rows)
        half = z / (1 + z**2 / rows) * math.sqrt(share * (1 - share) / rows + z**2 / (4 * rows**2))
        return Estimate(share, middle - half, middle + half)

    found = difference(wilson(56, 70), wilson(48, 80))
    assert (round(found.value, 4), round(found.low, 4), round(found.high, 4)) == (
        0.2,
        0.0524,
        0.3339,
    )


ZERO_TO_TWO = Bounds(0.0, 2.0)
TABLES = 300


def groups_of(rng: np.random.Generator, chances: np.ndarray, rows: int) -> list[Scored]:
    """Scores of 0 or 1 with these chances of 1."""
    ones = rng.binomial(rows, chances)
    return [Scored.of_sums(rows, float(own), float(own)) for own in ones]


@pytest.mark.parametrize("rows", [60, 400])
@pytest.mark.parametrize("count", [2, 10, 40])
@pytest.mark.parametrize("spread", [0.0, 0.02, 0.15])
def test_the_worst_and_the_best_of_all_groups_are_covered(
    count: int, rows: int, spread: float
) -> None:
    rng = np.random.default_rng(0)
    chances = 0.3 + spread * np.linspace(-1.0, 1.0, count)
    covered = np.zeros(3)
    for _ in range(TABLES):
        groups = groups_of(rng, chances, rows)
        high, low = (own(groups, Bounds(0.0, 1.0)) for own in (highest_mean, lowest_mean))
        gap = gap_of_means(groups, Bounds(0.0, 1.0))
        covered += (
            high.low <= chances.max() <= high.high,
            low.low <= chances.min() <= low.high,
            gap.low <= chances.max() - chances.min() <= gap.high,
        )
    # Two standard errors of a share of 95% among so many tables.
    assert covered.min() / TABLES >= 0.95 - 2.0 * math.sqrt(0.05 * 0.95 / TABLES)


@pytest.mark.parametrize("count", [2, 10, 40])
def test_equal_groups_have_a_gap_that_may_be_0(count: int) -> None:
    rng = np.random.default_rng(1)
    chances = np.full(count, 0.3)
    found = [gap_of_means(groups_of(rng, chances, 200), Bounds(0.0, 1.0)) for _ in range(TABLES)]
    assert np.mean([own.low > 0.0 for own in found]) <= 0.05
    assert all(own.value > 0.0 for own in found[:5])


def test_a_true_gap_is_found() -> None:
    rng = np.random.default_rng(2)
    chances = np.r_[np.full(9, 0.2), 0.5]
    found = [gap_of_means(groups_of(rng, chances, 400), Bounds(0.0, 1.0)) for _ in range(50)]
    assert np.mean([own.low > 0.0 for own in found]) >= 0.95


def test_metrics_have_these_intervals() -> None:
    rng = np.random.default_rng(3)
    groups = {str(number): own for number, own in enumerate(groups_of(rng, np.full(10, 0.3), 200))}
    risk = metric_by_group("brier_risk", groups, 0.95)
    assert risk.worst_group is not None
    own, worst = risk.by_group[risk.worst_group], risk.worst
    assert worst == highest_mean(list(groups.values()), ZERO_TO_TWO)
    assert worst is not None
    assert worst.value == own.value
    assert worst.low < own.low
    accuracy = metric_by_group("accuracy", groups, 0.95)
    assert accuracy.worst == lowest_mean(list(groups.values()), Bounds(0.0, 1.0))
    assert risk.difference == gap_of_means(list(groups.values()), ZERO_TO_TWO)
    rate = metric_by_group("selection_rate", groups, 0.95)
    assert (rate.worst_group, rate.worst) == (None, None)
