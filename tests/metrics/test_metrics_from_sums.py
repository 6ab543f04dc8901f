"""Metrics from sums alone are the metrics of the rows themselves, intervals and all."""

import math
from collections.abc import Mapping
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedminmax.metrics import group_metrics, regression_group_metrics
from fedminmax.metrics.by_group import AUROC, BOUNDS, GroupMetrics
from fedminmax.metrics.paired_change import paired_change
from fedminmax.metrics.row_scores import (
    PAIRED,
    RISKS,
    RowScore,
    score_classes,
    score_quantities,
    stacked,
)
from fedminmax.metrics.sums import ScoreSums, metrics_from_sums, paired_sums_of, sum_scores

GENERATOR = np.random.default_rng(0)
SIZES = (500, 300, 200, 7)
GROUP = np.repeat(range(4), SIZES)
ROWS = len(GROUP)

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


def sums_of(
    *models: Mapping[str, RowScore], group: NDArray[np.int64] = GROUP, groups: int = 4
) -> ScoreSums:
    table = torch.from_numpy(np.concatenate([stacked(own) for own in models], axis=1))
    return sum_scores(table, torch.from_numpy(group), groups, tuple(models[0]))


def assert_same(found: object, expected: object) -> None:
    """The same records, with numbers that differ by rounding alone."""
    if isinstance(expected, dict):
        assert isinstance(found, dict)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert_same(found[name], value)
    elif isinstance(expected, list | tuple):
        assert isinstance(found, list | tuple)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-7, abs=1e-10, nan_ok=True)
    else:
        assert found == expected


def without_auroc(found: GroupMetrics) -> GroupMetrics:
    """From sums it is of binned scores: tests/metrics/test_auroc.py compares these."""
    return replace(found, metrics={k: v for k, v in found.metrics.items() if k != AUROC})


@pytest.mark.parametrize("task", TASKS)
def test_values_intervals_and_verdicts_are_those_of_the_rows(task: str) -> None:
    scores, expected = TASKS[task]
    found = without_auroc(metrics_from_sums(tuple(scores), sums_of(scores), 0))
    assert found.counts == expected.counts == dict(zip("0123", SIZES, strict=True))
    assert_same(asdict(found), asdict(without_auroc(expected)))


def test_parts_of_sites_add_up_to_the_same() -> None:
    scores, expected = TASKS["binary"]
    parts = []
    for site in range(3):
        mine = np.arange(ROWS) % 3 == site
        own = {
            name: RowScore(one.numerators[mine], one.denominators[mine])
            for name, one in scores.items()
        }
        parts.append(sums_of(own, group=GROUP[mine]))
    found = metrics_from_sums(tuple(scores), parts[0] + parts[1] + parts[2], 0)
    assert_same(asdict(without_auroc(found)), asdict(without_auroc(expected)))


@pytest.mark.parametrize("task", ["binary", "regression"])
def test_the_change_is_that_of_the_rows(task: str) -> None:
    if task == "binary":
        better = np.clip(PROBABILITY + 0.3 * (SICK - PROBABILITY) * (GROUP == 1), 0, 1)
        after = score_classes(SICK, y_prob=better, classes=[0, 1])
    else:
        after = score_quantities(COST, 0.7 * GUESS + 0.3 * COST)
    before, _ = TASKS[task]

    def own_rows(name: str) -> ScoreSums:
        """Sum over the rows alone that the metric is about."""
        about = after[name].denominators == 1.0
        pair = np.stack([after[name].numerators, before[name].numerators], axis=1)
        return sum_scores(torch.from_numpy(pair[about]), torch.from_numpy(GROUP[about]), 4)

    of_rows = {name: own_rows(name) for name in after if name in PAIRED}
    of_sums = paired_sums_of(tuple(before), sums_of(after, before))
    assert of_rows.keys() == of_sums.keys()
    assert len(of_rows) == {"binary": 4, "regression": 2}[task]
    for name, sums in of_sums.items():
        found, expected = (paired_change(one, BOUNDS[name]) for one in (sums, of_rows[name]))
        assert_same(asdict(found), asdict(expected))
        assert expected.by_group[1].high < 0.0 or name not in RISKS


def test_a_group_without_rows_has_no_value() -> None:
    scores, _ = TASKS["binary"]
    sums = sums_of(scores, scores, group=np.where(GROUP == 2, 4, GROUP), groups=5)
    metrics = metrics_from_sums(tuple(scores), sums, 0)
    present = ["0", "1", "3", "4"]
    assert list(metrics.counts) == list(metrics.metrics["accuracy"].by_group) == present
    change = paired_change(paired_sums_of(tuple(scores), sums)["brier_risk"], BOUNDS["brier_risk"])
    assert math.isnan(change.by_group[2].value)
    assert not math.isnan(change.by_group[4].value)


def test_a_rate_among_rows_that_a_group_has_not_is_unknown() -> None:
    """Nobody in group 2 is sick: there is no rate of missed sick."""
    well = np.where(GROUP == 2, 0, SICK)
    scores = score_classes(well, y_prob=PROBABILITY, classes=[0, 1])
    metrics = metrics_from_sums(tuple(scores), sums_of(scores), 0).metrics
    metric = metrics["false_negative_rate"]
    assert math.isnan(metric.by_group["2"].value)
    assert math.isnan(metric.by_group["2"].high)
    assert metric.worst_group in ("0", "1")
    assert not math.isnan(metric.overall.low)


@pytest.mark.parametrize("right", [29, 1])
def test_no_interval_leaves_what_rows_can_score(right: int) -> None:
    answers, rows = np.arange(30) < right, np.zeros(30, np.int64)
    probability = np.where(answers, 0.01, 0.99)
    scores = score_classes(np.zeros(30, int), y_prob=probability, classes=[0, 1])
    metrics = metrics_from_sums(tuple(scores), sums_of(scores, group=rows, groups=1), 0).metrics
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
