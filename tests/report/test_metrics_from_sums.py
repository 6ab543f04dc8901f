"""Metrics from sums against metrics from the rows themselves, and a bootstrap of the rows."""

import math
from collections.abc import Mapping
from functools import cache

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedminmax import group_metrics, regression_group_metrics
from fedminmax.core.score_sums import sum_scores
from fedminmax.data.row_scores import RowScore, score_classes, score_quantities, stacked
from fedminmax.report.metric_by_group import Estimate, GroupMetrics, MetricByGroup
from fedminmax.report.metrics_from_sums import DrawnSums
from fedminmax.report.paired_change import paired_change

Table = NDArray[np.float64]
GENERATOR = np.random.default_rng(0)
SIZES = (500, 300, 200)
GROUP = np.repeat([0, 1, 2], SIZES)
ROWS = len(GROUP)
DRAWN_BY_HAND = 8000
# A percentile of 1,000 draws errs by 0.085 deviations, one of 8,000 by 0.03: four times both,
# and some for skewness.
PERCENTILE_ERROR = 0.42

PROBABILITY = GENERATOR.beta(2, 3 - GROUP / 2)
SICK = (GENERATOR.random(ROWS) < PROBABILITY**1.3).astype(int)
THREE = GENERATOR.dirichlet([2.0, 1.0, 1.0], ROWS)
STAGE = np.array([GENERATOR.choice(3, p=own) for own in THREE])
COST = 1000 + 200 * GENERATOR.normal(size=ROWS)
GUESS = COST + 50 * (GENERATOR.exponential(size=ROWS) - 0.7) * (GROUP + 1)
TASKS: dict[str, tuple[dict[str, RowScore], GroupMetrics]] = {
    "binary": (
        score_classes(SICK, y_prob=PROBABILITY, classes=[0, 1]),
        group_metrics(SICK, y_prob=PROBABILITY, sensitive_features=GROUP),
    ),
    "three classes": (
        score_classes(STAGE, y_prob=THREE, classes=[0, 1, 2]),
        group_metrics(STAGE, y_prob=THREE, sensitive_features=GROUP),
    ),
    "regression": (
        score_quantities(COST, GUESS),
        regression_group_metrics(COST, GUESS, sensitive_features=GROUP),
    ),
}


def drawn_from(
    *models: Mapping[str, RowScore],
    group: NDArray[np.int64] = GROUP,
    groups: int = 3,
    seed: int = 0,
) -> DrawnSums:
    table = torch.from_numpy(np.concatenate([stacked(own) for own in models], axis=1))
    return DrawnSums(tuple(models[0]), sum_scores(table, torch.from_numpy(group), groups), seed)


@cache
def counts_of_rows(group: int) -> Table:
    """How often each of a group's rows is drawn [draws, rows], by numpy alone."""
    rows = SIZES[group]
    drawn = np.random.default_rng(group).multinomial(rows, np.full(rows, 1 / rows), DRAWN_BY_HAND)
    return drawn.astype(np.float64)


def drawn_by_hand(table: Table, group: int) -> Table:
    """Sums [draws, columns] of a group's drawn rows."""
    sums: Table = counts_of_rows(group) @ table[group == GROUP]
    return sums


def estimates(metric: MetricByGroup) -> list[Estimate]:
    return [*metric.by_group.values(), metric.overall, metric.gap]


def assert_like(found: Estimate, drawn: Table) -> None:
    low, high = np.quantile(drawn, [0.025, 0.975])
    np.testing.assert_allclose(
        [found.low, found.high], [low, high], rtol=0, atol=PERCENTILE_ERROR * drawn.std()
    )


@pytest.mark.parametrize("task", TASKS)
def test_values_are_exactly_those_of_the_rows(task: str) -> None:
    scores, expected = TASKS[task]
    found = drawn_from(scores).metrics(0)
    assert found.counts == expected.counts == dict(zip("012", SIZES, strict=True))
    assert found.metrics.keys() == expected.metrics.keys()
    for name, metric in found.metrics.items():
        other = expected.metrics[name]
        assert metric.worst_group == other.worst_group
        for one, same in zip(estimates(metric), estimates(other), strict=True):
            assert one.value == pytest.approx(same.value, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("task", TASKS)
def test_intervals_are_close_to_those_of_drawn_rows(task: str) -> None:
    scores, _ = TASKS[task]
    found = drawn_from(scores).metrics(0)
    by_hand = [drawn_by_hand(stacked(scores), group) for group in range(3)]
    for place, metric in enumerate(found.metrics.values()):
        above = np.stack([own[:, place] for own in by_hand])
        below = np.stack([own[:, place + len(scores)] for own in by_hand])
        for number, estimate in enumerate(metric.by_group.values()):
            assert_like(estimate, above[number] / below[number])
        assert_like(metric.overall, above.sum(axis=0) / below.sum(axis=0))
        values = [estimate.value for estimate in metric.by_group.values()]
        high, low = int(np.argmax(values)), int(np.argmin(values))
        assert_like(metric.gap, above[high] / below[high] - above[low] / below[low])


def test_the_change_is_close_to_that_of_drawn_pairs() -> None:
    """The second model is right where the first is, mostly: their errors must cancel."""
    better = np.clip(PROBABILITY + 0.3 * (SICK - PROBABILITY) * (GROUP == 1), 0, 1)
    better = np.clip(better + 0.02 * GENERATOR.normal(size=ROWS), 0, 1)
    models = [score_classes(SICK, y_prob=own, classes=[0, 1]) for own in (better, PROBABILITY)]
    drawn = drawn_from(*models)
    change = paired_change(drawn.risk(0), drawn.risk(1), 0.95)
    losses = [2 * (own - SICK) ** 2 for own in (better, PROBABILITY)]
    difference = losses[0] - losses[1]
    sums = [drawn_by_hand(difference[:, None], group)[:, 0] for group in range(3)]
    for number, estimate in enumerate(change.by_group):
        own = number == GROUP
        assert estimate.value == pytest.approx(difference[own].mean(), abs=1e-12)
        assert_like(estimate, sums[number] / SIZES[number])
        apart = math.hypot(*(loss[own].std() for loss in losses)) / math.sqrt(SIZES[number])
        assert estimate.high - estimate.low < 0.6 * 2 * 1.96 * apart
    assert change.overall.value == pytest.approx(difference.mean(), abs=1e-12)
    assert_like(change.overall, np.sum(sums, axis=0) / ROWS)


def test_a_model_differs_from_itself_by_rounding_alone() -> None:
    scores, _ = TASKS["binary"]
    drawn = drawn_from(scores, scores)
    change = paired_change(drawn.risk(0), drawn.risk(1), 0.95)
    for own in (*change.by_group, change.overall, change.worst):
        assert own.value == 0.0
        assert max(abs(own.low), abs(own.high)) < 1e-12


def test_a_group_without_rows_has_no_value() -> None:
    scores, _ = TASKS["binary"]
    found = drawn_from(scores, group=np.where(GROUP == 2, 3, GROUP), groups=4)
    metrics = found.metrics(0)
    assert found.rows == ROWS
    assert list(metrics.counts) == list(metrics.metrics["accuracy"].by_group) == ["0", "1", "3"]
    change = paired_change(found.risk(0), found.risk(0), 0.95)
    assert math.isnan(change.by_group[2].value)
    assert not math.isnan(change.by_group[3].value)


def test_a_single_row_does_not_vary() -> None:
    """Its interval says nothing of what other rows would be: as with a bootstrap of rows."""
    alone = np.concatenate([GROUP[:-1], [3]])
    metrics = drawn_from(TASKS["binary"][0], group=alone, groups=4).metrics(0)
    for name, metric in metrics.metrics.items():
        own = metric.by_group["3"]
        if math.isnan(own.value):
            assert name in ("false_positive_rate", "false_negative_rate")
            assert math.isnan(own.low)
        else:
            assert own.low == own.high == pytest.approx(own.value)


def test_a_rate_among_rows_that_a_group_has_not_is_unknown() -> None:
    """Nobody in group 2 is sick: there is no rate of missed sick."""
    well = np.where(GROUP == 2, 0, SICK)
    scores = score_classes(well, y_prob=PROBABILITY, classes=[0, 1])
    metric = drawn_from(scores).metrics(0).metrics["false_negative_rate"]
    assert math.isnan(metric.by_group["2"].value)
    assert math.isnan(metric.by_group["2"].high)
    assert metric.worst_group in ("0", "1")
    assert not math.isnan(metric.overall.low)


@pytest.mark.parametrize("right", [29, 1])
def test_no_interval_leaves_what_rows_can_score(right: int) -> None:
    """One row of 30 differs: a normal distribution would reach beyond 0 and 1."""
    answers, rows = np.arange(30) < right, np.zeros(30, np.int64)
    probability = np.where(answers, 0.01, 0.99)
    scores = score_classes(np.zeros(30, int), y_prob=probability, classes=[0, 1])
    metrics = drawn_from(scores, group=rows, groups=1).metrics(0).metrics
    for name, least, most in (
        ("accuracy", 0.0, 1.0),
        ("brier_risk", 0.0, 2.0),
        ("selection_rate", 0.0, 1.0),
        ("false_positive_rate", 0.0, 1.0),
        ("calibration", -1.0, 1.0),
        ("overconfidence", -1.0, 1.0),
    ):
        own = metrics[name].by_group["0"]
        assert least <= own.low < own.value < own.high <= most
        assert metrics[name].overall == own
    errors = score_quantities(np.zeros(30), np.where(answers, 0.0, 9.0))
    metrics = drawn_from(errors, group=rows, groups=1).metrics(0).metrics
    for name in ("squared_error", "absolute_error"):
        own = metrics[name].overall
        assert 0.0 <= own.low < own.value < own.high


@pytest.mark.parametrize(("given", "missed"), [(0.9, 0.0), (0.1, 1.0)])
def test_a_rate_among_few_rows_has_no_values_from_nowhere(given: float, missed: float) -> None:
    """Of three sick none or all are missed: so it is in every resample that has any of them."""
    true, group = (np.arange(300) < 3).astype(int), np.zeros(300, np.int64)
    probability = np.where(true == 1, given, GENERATOR.random(300))
    scores = score_classes(true, y_prob=probability, classes=[0, 1])
    rate = drawn_from(scores, group=group, groups=1).metrics(0).metrics["false_negative_rate"]
    found = (rate.overall.value, rate.overall.low, rate.overall.high)
    assert found == pytest.approx((missed,) * 3)


def test_the_seed_decides_the_intervals_and_other_groups_do_not() -> None:
    scores, _ = TASKS["regression"]
    first, again, other = (drawn_from(scores, seed=seed).metrics(0) for seed in (4, 4, 5))
    assert first == again
    assert first != other
    without = GROUP != 2
    fewer = {
        name: RowScore(own.numerators[without], own.denominators[without])
        for name, own in scores.items()
    }
    alone = drawn_from(fewer, group=GROUP[without], seed=4).metrics(0)
    for name in scores:
        for group in "01":
            assert alone.metrics[name].by_group[group] == first.metrics[name].by_group[group]


@pytest.mark.parametrize("unit", [1e-6, 1e8])
def test_the_unit_of_the_target_does_not_matter(unit: float) -> None:
    """Errors in another unit have the same intervals in that unit, and squares in its square."""
    expected = drawn_from(TASKS["regression"][0]).metrics(0)
    found = drawn_from(score_quantities(unit * COST, unit * GUESS)).metrics(0)
    for name, factor in (
        ("squared_error", unit**2),
        ("absolute_error", unit),
        ("mean_error", unit),
    ):
        pairs = zip(estimates(found.metrics[name]), estimates(expected.metrics[name]), strict=True)
        for one, same in pairs:
            ends = (factor * same.low, factor * same.high)
            assert (one.low, one.high) == pytest.approx(ends, rel=1e-6)
