"""The change between two models on the same rows, against theory and another bootstrap."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from fedminmax.report.bootstrap import resampled_sums
from fedminmax.report.metric_by_group import Estimate
from fedminmax.report.paired_change import RiskSums, paired_change
from tests.complaints import complaint_of

Column = NDArray[np.float64]

GENERATOR = np.random.default_rng(0)
SIZES = (120, 300)
GROUP = np.repeat([0, 1], SIZES)
OWN = (GROUP == 0, GROUP == 1)
# Half of what makes a row hard is hard for both models.
SHARED = GENERATOR.exponential(size=len(GROUP))
AFTER = SHARED + GENERATOR.exponential(0.3, size=len(GROUP)) + 0.4 * OWN[1]
BEFORE = SHARED + GENERATOR.exponential(0.5, size=len(GROUP)) + 0.9 * OWN[0]


def sums_of(
    losses: Column,
    *,
    group: NDArray[np.int64] = GROUP,
    groups: int = 2,
    seed: int = 0,
    resamples: int = 4000,
) -> RiskSums:
    table = np.stack([losses, np.ones(len(losses))], axis=1)
    observed = np.array([table[group == number].sum(axis=0) for number in range(groups)])
    return RiskSums(observed, resampled_sums(table, group, groups, resamples=resamples, seed=seed))


def half_width(estimate: Estimate) -> float:
    return (estimate.high - estimate.low) / 2


def test_values_are_differences_of_means() -> None:
    change = paired_change(sums_of(AFTER), sums_of(BEFORE), 0.95)
    differences = AFTER - BEFORE
    assert change.overall.value == pytest.approx(differences.mean())
    for number, own in enumerate(change.by_group):
        assert own.value == pytest.approx(differences[OWN[number]].mean())
        assert own.low < own.value < own.high


def test_another_bootstrap_of_the_differences_gives_the_same_intervals() -> None:
    """Rows drawn one by one with another generator; both have 4000 resamples."""
    change = paired_change(sums_of(AFTER), sums_of(BEFORE), 0.9)
    generator, differences = np.random.default_rng(77), AFTER - BEFORE
    means = []
    for number, size in enumerate(SIZES):
        own = differences[OWN[number]]
        means.append(np.array([generator.choice(own, size).mean() for _ in range(4000)]))
    overall = (SIZES[0] * means[0] + SIZES[1] * means[1]) / sum(SIZES)
    for drawn, found in zip([*means, overall], [*change.by_group, change.overall], strict=True):
        expected = np.quantile(drawn, [0.05, 0.95])
        # A quantile of so many draws is known to 0.033 deviations: four of these, for two of them.
        np.testing.assert_allclose([found.low, found.high], expected, atol=0.2 * drawn.std())


def test_the_width_is_that_of_a_paired_mean() -> None:
    """deviation(after - before) / sqrt(rows), not the root of two separate variances."""
    change = paired_change(sums_of(AFTER), sums_of(BEFORE), 0.95)
    for number, (own, size) in enumerate(zip(change.by_group, SIZES, strict=True)):
        mine = OWN[number]
        error = (AFTER - BEFORE)[mine].std() / math.sqrt(size)
        assert half_width(own) == pytest.approx(1.96 * error, rel=0.08)
        apart = math.hypot(AFTER[mine].std(), BEFORE[mine].std()) / math.sqrt(size)
        assert half_width(own) < 0.6 * 1.96 * apart
    shares = np.array(SIZES) / sum(SIZES)
    errors = [(AFTER - BEFORE)[OWN[number]].std() / math.sqrt(SIZES[number]) for number in (0, 1)]
    assert half_width(change.overall) == pytest.approx(
        1.96 * math.hypot(*shares * errors), rel=0.08
    )


def test_a_constant_shift_is_certain() -> None:
    change = paired_change(sums_of(BEFORE - 0.125), sums_of(BEFORE), 0.95)
    for own in (*change.by_group, change.overall, change.worst):
        assert own.value == pytest.approx(-0.125, abs=1e-12)
        assert own.high - own.low < 1e-12


def test_the_same_model_changes_nothing_at_all() -> None:
    change = paired_change(sums_of(AFTER), sums_of(AFTER), 0.95)
    for own in (*change.by_group, change.overall, change.worst):
        assert (own.value, own.low, own.high) == (0.0, 0.0, 0.0)


def test_from_the_worst_group_before_to_the_worst_group_after() -> None:
    """Group 0 is worst before and group 1 after; their rows are drawn independently."""
    worst = paired_change(sums_of(AFTER), sums_of(BEFORE), 0.95).worst
    one, other = AFTER[OWN[1]], BEFORE[OWN[0]]
    assert one.mean() > AFTER[OWN[0]].mean()
    assert other.mean() > BEFORE[OWN[1]].mean()
    assert worst.value == pytest.approx(one.mean() - other.mean())
    error = math.hypot(one.std() / math.sqrt(len(one)), other.std() / math.sqrt(len(other)))
    assert half_width(worst) == pytest.approx(1.96 * error, rel=0.08)


def test_sums_of_sites_add_up() -> None:
    """Each site draws among its own rows; the server sees sums alone."""
    halves = [np.arange(len(GROUP)) % 2 == site for site in (0, 1)]

    def added(losses: Column) -> RiskSums:
        sites = [
            sums_of(losses[half], group=GROUP[half], seed=site) for site, half in enumerate(halves)
        ]
        observed, resampled = (sites[0].observed, sites[0].resampled)
        return RiskSums(observed + sites[1].observed, resampled + sites[1].resampled)

    change = paired_change(added(AFTER), added(BEFORE), 0.95)
    pooled = paired_change(sums_of(AFTER), sums_of(BEFORE), 0.95)
    for own, same in zip(change.by_group, pooled.by_group, strict=True):
        assert own.value == pytest.approx(same.value)
        assert half_width(own) == pytest.approx(half_width(same), rel=0.12)


def test_a_group_without_rows_has_no_change() -> None:
    change = paired_change(sums_of(AFTER, groups=3), sums_of(BEFORE, groups=3), 0.95)
    assert math.isnan(change.by_group[2].value)
    assert math.isnan(change.by_group[2].low)
    assert change.worst == paired_change(sums_of(AFTER), sums_of(BEFORE), 0.95).worst


def test_other_rows_or_resamples_are_refused() -> None:
    fewer = sums_of(BEFORE[1:], group=GROUP[1:])
    expected = "not measured on the same rows and resamples"
    assert expected in complaint_of(lambda: paired_change(sums_of(AFTER), fewer, 0.95))
    short = sums_of(BEFORE, resamples=5)
    assert expected in complaint_of(lambda: paired_change(sums_of(AFTER), short, 0.95))
