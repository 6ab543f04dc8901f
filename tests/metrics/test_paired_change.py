"""The change between two models on the same rows, against theory and arithmetic on the rows."""

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedminmax.metrics.intervals import MIN_ROWS, Bounds, Estimate, Scored, mean_interval
from fedminmax.metrics.paired_change import paired_change
from fedminmax.metrics.sums import ScoreSums, sum_scores

Column = NDArray[np.float64]

GENERATOR = np.random.default_rng(0)
ERROR = Bounds(0.0, math.inf)
ANYTHING = Bounds(-math.inf, math.inf)
SIZES = (4_000, 30_000)
GROUP = np.repeat([0, 1], SIZES)
OWN = (GROUP == 0, GROUP == 1)
# Half of what makes a row hard is hard for both models.
SHARED = GENERATOR.exponential(size=len(GROUP))
AFTER = SHARED + GENERATOR.exponential(0.3, size=len(GROUP)) + 0.4 * OWN[1]
BEFORE = SHARED + GENERATOR.exponential(0.5, size=len(GROUP)) + 0.9 * OWN[0]


def sums_of(
    after: Column, before: Column, group: NDArray[np.int64] = GROUP, groups: int = 2
) -> ScoreSums:
    scores = torch.from_numpy(np.stack([after, before], axis=1))
    return sum_scores(scores, torch.from_numpy(group), groups)


def of_rows(differences: Column, bounds: Bounds = ANYTHING) -> Estimate:
    squares = float((differences**2).sum())
    return mean_interval(Scored(len(differences), float(differences.mean()), squares), bounds)


def same(one: Estimate, other: Estimate) -> bool:
    pairs = ((one.value, other.value), (one.low, other.low), (one.high, other.high))
    return all(first == pytest.approx(second, abs=1e-10) for first, second in pairs)


def half_width(estimate: Estimate) -> float:
    return (estimate.high - estimate.low) / 2


def test_it_is_the_interval_of_the_differences_row_by_row() -> None:
    change = paired_change(sums_of(AFTER, BEFORE), ERROR)
    for number, own in enumerate(change.by_group):
        assert same(own, of_rows((AFTER - BEFORE)[OWN[number]]))
    assert same(change.overall, of_rows(AFTER - BEFORE))


def test_two_scores_of_a_row_differ_by_the_whole_range_at_the_most() -> None:
    after, before = np.full(60, 0.5), np.full(60, 0.7)
    change = paired_change(sums_of(after, before, np.zeros(60, np.int64), 1), Bounds(0.0, 2.0))
    assert same(change.overall, of_rows(after - before, Bounds(-2.0, 2.0)))
    # All 60 rows gain 0.2, and 3 rows of 60 that lose 2 may be missing by chance.
    assert change.overall.low < -0.2 < -0.1 < change.overall.high < 0.0


def test_the_width_is_that_of_a_paired_mean() -> None:
    """deviation(after - before) / sqrt(rows), not the root of two separate variances."""
    change = paired_change(sums_of(AFTER, BEFORE), ERROR)
    for number, (own, size) in enumerate(zip(change.by_group, SIZES, strict=True)):
        mine = OWN[number]
        error = (AFTER - BEFORE)[mine].std() / math.sqrt(size)
        assert 1.96 * error < half_width(own) < 1.3 * 1.96 * error
        apart = math.hypot(AFTER[mine].std(), BEFORE[mine].std()) / math.sqrt(size)
        assert half_width(own) < 0.6 * 1.96 * apart


def test_a_constant_shift_of_errors_is_certain() -> None:
    change = paired_change(sums_of(BEFORE - 0.125, BEFORE), ERROR)
    for own in (*change.by_group, change.overall):
        assert own.value == pytest.approx(-0.125, abs=1e-12)
        assert own.high - own.low < 1e-6


def test_from_the_worst_group_before_to_the_worst_group_after() -> None:
    """Group 0 is worst before and group 1 after; they have no rows in common."""
    worst = paired_change(sums_of(AFTER, BEFORE), ERROR).worst
    one, other = AFTER[OWN[1]], BEFORE[OWN[0]]
    assert one.mean() > AFTER[OWN[0]].mean()
    assert other.mean() > BEFORE[OWN[1]].mean()
    assert worst.value == pytest.approx(one.mean() - other.mean())
    error = math.hypot(one.std() / math.sqrt(len(one)), other.std() / math.sqrt(len(other)))
    assert 1.96 * error < half_width(worst) < 1.3 * 1.96 * error
    pair = paired_change(sums_of(BEFORE - 0.5, BEFORE), ERROR)
    assert pair.worst == pair.by_group[0]


def test_a_group_of_few_rows_is_never_the_worst() -> None:
    few = np.where(np.arange(len(GROUP)) < MIN_ROWS - 1, 2, GROUP)
    change = paired_change(sums_of(AFTER + 9.0 * (few == 2), BEFORE, few, 3), ERROR)
    assert change.worst.value < 5.0
    assert math.isnan(change.by_group[2].low)
    nobody = paired_change(sums_of(AFTER[:9], BEFORE[:9], GROUP[:9]), ERROR)
    assert math.isnan(nobody.worst.value)


def test_sums_of_sites_add_up() -> None:
    halves = [np.arange(len(GROUP)) % 2 == site for site in (0, 1)]
    sites = [sums_of(AFTER[half], BEFORE[half], GROUP[half]) for half in halves]
    change = paired_change(sites[0] + sites[1], ERROR)
    pooled = paired_change(sums_of(AFTER, BEFORE), ERROR)
    for own, other in zip(change.by_group, pooled.by_group, strict=True):
        assert same(own, other)
    assert same(change.worst, pooled.worst)


def test_a_group_without_rows_has_no_change() -> None:
    change = paired_change(sums_of(AFTER, BEFORE, groups=3), ERROR)
    assert math.isnan(change.by_group[2].value)
    assert math.isnan(change.by_group[2].low)
    assert change.worst == paired_change(sums_of(AFTER, BEFORE), ERROR).worst
