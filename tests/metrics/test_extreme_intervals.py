"""The worst of many groups, and the gap: covered as often as promised, seeded simulations."""

import math

import numpy as np
import pytest

from fedminmax.metrics.by_group import metric_by_group
from fedminmax.metrics.intervals import Bounds, Scored, gap_of_means, highest_mean, lowest_mean

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
    # Two standard errors of a share of 95 % among so many tables.
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
