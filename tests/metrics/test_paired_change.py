"""The change between two models on the same rows, against theory and arithmetic on the rows."""

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import norm

from fedminmax.metrics.by_group import BOUNDS
from fedminmax.metrics.intervals import MIN_ROWS, Bounds, Estimate, Scored, mean_interval
from fedminmax.metrics.paired_change import paired_change, paired_changes
from fedminmax.metrics.row_scores import FALSE_ALARMS, MISSED, score_classes, stacked
from fedminmax.metrics.sums import ScoreSums, paired_sums_of, sum_scores

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


def test_a_change_of_misses_is_mcnemars() -> None:
    """Wald's interval of (b - c) / n from the discordant pairs, at the level of six changes."""
    draw = np.random.default_rng(1)
    rows = 40_000
    sick = draw.random(rows) < 0.3
    hard = draw.random(rows)
    before = np.where(sick, hard > 0.44, hard > 0.93)
    after = np.where(sick, (hard > 0.5) | (draw.random(rows) < 0.02), before)
    scores = [
        score_classes(sick, y_pred=chosen, classes=[False, True]) for chosen in (after, before)
    ]
    table = torch.from_numpy(np.concatenate([stacked(one) for one in scores], axis=1))
    sums = sum_scores(table, torch.zeros(rows, dtype=torch.int64), 1)
    pairs = paired_sums_of(tuple(scores[0]), sums)
    assert set(pairs) == {"accuracy", FALSE_ALARMS, MISSED}
    found = paired_changes(pairs, BOUNDS)
    # Three metrics, of one group and of all rows.
    assert found.comparisons == 6
    people, lost = int(sick.sum()), int((sick & before & ~after).sum())
    won = int((sick & ~before & after).sum())
    share = (lost - won) / people
    error = math.sqrt(lost + won - (lost - won) ** 2 / people) / people
    half = norm.ppf(1 - 0.05 / 6 / 2) * error
    misses = found.metrics[MISSED].by_group[0]
    assert misses.value == pytest.approx(share)
    assert misses.low == pytest.approx(share - half, abs=0.05 * half)
    assert misses.high == pytest.approx(share + half, abs=0.05 * half)
    # No false alarm changed: nothing but the rows that were not drawn is uncertain.
    alarms = found.metrics[FALSE_ALARMS].by_group[0]
    assert alarms.value == 0.0
    assert -7.0 / (rows - people) < alarms.low < 0.0 < alarms.high < 7.0 / (rows - people)


def drawn(draw: np.random.Generator, rows: int, worse: float, better: float) -> ScoreSums:
    """Twenty groups of so many rows, of which these shares are wrong with one model alone."""
    shares = [worse, better, 1.0 - worse - better]
    one, other, _ = torch.from_numpy(draw.multinomial(rows, shares, size=20)).double().T
    totals = torch.stack([one, other], dim=1)
    no_curves = torch.zeros(20, 0, dtype=torch.int64)
    return ScoreSums(torch.full((20,), rows), totals, torch.diag_embed(totals), no_curves)


@pytest.mark.parametrize(
    ("positives", "missed", "alarms"),
    [(60, (0.05, 0.0), (0.0, 0.03)), (50, (0.1, 0.0), (0.0, 0.1)), (300, (0.1, 0.1), (0.05, 0.05))],
)
def test_all_intervals_hold_at_once(
    positives: int, missed: tuple[float, float], alarms: tuple[float, float]
) -> None:
    """Of 20 groups and two kinds of mistakes, rare ones that change one way, or both ways alike."""
    draw, tables, held = np.random.default_rng(2), 300, 0
    true = {MISSED: missed[0] - missed[1], FALSE_ALARMS: alarms[0] - alarms[1]}
    for _ in range(tables):
        pairs = {
            MISSED: drawn(draw, positives, *missed),
            FALSE_ALARMS: drawn(draw, 300, *alarms),
        }
        found = paired_changes(pairs, BOUNDS)
        assert found.comparisons == 42
        held += all(
            own.low <= true[name] <= own.high
            for name, change in found.metrics.items()
            for own in (*change.by_group, change.overall)
        )
    # Three standard errors of a share of 0.95 over so many tables.
    assert held / tables >= 0.95 - 3 * math.sqrt(0.0475 / tables)


def test_only_what_has_enough_rows_is_compared() -> None:
    """Three groups of 60, 49 and 60 rows, the last too small in training: one, and all rows."""
    group = np.repeat([0, 1, 2], [60, MIN_ROWS - 1, 60])
    pairs = {"accuracy": sums_of(np.ones(169), np.zeros(169), group, 3)}
    alone = paired_changes(pairs, BOUNDS, small=(2,))
    assert alone.comparisons == 2
    each = paired_change(pairs["accuracy"], BOUNDS["accuracy"], 0.975, small=(2,))
    assert alone.metrics["accuracy"].by_group == each.by_group
