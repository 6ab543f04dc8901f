"""Differences and ratios of rates between groups, against Fairlearn and by draws."""

import math
from dataclasses import asdict

import fairlearn.metrics as fairlearn
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedminmax.metrics.by_group import group_metrics
from fedminmax.metrics.intervals import Bounds, Scored, mean_interval
from fedminmax.metrics.parity import ParityMeasure, parity_measures, ratio
from fedminmax.metrics.row_scores import MISSED, SELECTED, score_classes, stacked
from fedminmax.metrics.sums import metrics_from_sums, parity_from_totals, sum_scores

ORACLES = {
    "demographic_parity": (
        fairlearn.demographic_parity_difference,
        fairlearn.demographic_parity_ratio,
    ),
    "equalized_odds": (fairlearn.equalized_odds_difference, fairlearn.equalized_odds_ratio),
    "equal_opportunity": (
        fairlearn.equal_opportunity_difference,
        fairlearn.equal_opportunity_ratio,
    ),
}


def drawn(seed: int, rows: int = 2_000) -> tuple[NDArray[np.int64], ...]:
    random = np.random.default_rng(seed)
    group = random.integers(4, size=rows)
    true = (random.random(rows) < 0.2 + 0.1 * group).astype(np.int64)
    chosen = (random.random(rows) < 0.15 + 0.5 * true + 0.05 * group).astype(np.int64)
    return group, true, chosen


def measured(seed: int, rows: int = 2_000) -> dict[str, ParityMeasure]:
    group, true, chosen = drawn(seed, rows)
    return group_metrics(true, y_pred=chosen, sensitive_features=group).parity


@pytest.mark.parametrize("seed", range(5))
def test_values_are_fairlearns(seed: int) -> None:
    group, true, chosen = drawn(seed)
    found = measured(seed)
    assert found.keys() == ORACLES.keys()
    for name, (difference, lowest_ratio) in ORACLES.items():
        own = found[name]
        for value, oracle in ((own.difference, difference), (own.ratio, lowest_ratio)):
            expected = oracle(true, chosen, sensitive_features=group)
            assert value.value == pytest.approx(expected, abs=1e-12)
            assert value.low <= value.value <= value.high
        assert not own.left_out


def test_a_small_group_is_left_out_and_named_and_the_rest_is_as_without_it() -> None:
    group, true, chosen = drawn(1)
    few = np.flatnonzero(group == 3)[:30]
    kept = np.concatenate([np.flatnonzero(group != 3), few])
    own = group_metrics(true[kept], y_pred=chosen[kept], sensitive_features=group[kept]).parity
    others = group != 3
    without = group_metrics(true[others], y_pred=chosen[others], sensitive_features=group[others])
    for name, (difference, _) in ORACLES.items():
        assert own[name].left_out == ("3",)
        assert asdict(own[name]) == asdict(without.parity[name]) | {"left_out": ("3",)}
        expected = difference(true[others], chosen[others], sensitive_features=group[others])
        assert own[name].difference.value == pytest.approx(expected, abs=1e-12)


def test_a_group_without_positives_has_no_rate_of_true_positives() -> None:
    """Fairlearn takes it as 0, so that its difference is that of another group from 0."""
    group, true, chosen = drawn(2)
    true = np.where(group == 0, 0, true)
    found = group_metrics(true, y_pred=chosen, sensitive_features=group).parity
    assert found["equal_opportunity"].left_out == found["equalized_odds"].left_out == ("0",)
    assert found["demographic_parity"].left_out == ()
    oracle = fairlearn.equal_opportunity_difference(true, chosen, sensitive_features=group)
    assert found["equal_opportunity"].difference.value < oracle


def test_nobody_selected_has_no_ratio_and_one_group_no_difference() -> None:
    group, true, _ = drawn(3)
    found = group_metrics(true, y_pred=0 * true, sensitive_features=group).parity
    assert found["demographic_parity"].difference.value == 0.0
    assert math.isnan(found["demographic_parity"].ratio.value)
    assert math.isnan(found["equalized_odds"].ratio.value)
    alone = group_metrics(true, y_pred=true, sensitive_features=["a"] * len(true)).parity
    assert math.isnan(alone["demographic_parity"].difference.value)
    assert alone["demographic_parity"].highest is None
    assert parity_measures({SELECTED: {}, MISSED: {}}, 0.95) == {}


def test_from_sums_and_from_totals_it_is_the_same() -> None:
    group, true, chosen = drawn(4)
    scores = score_classes(true, y_prob=0.1 + 0.8 * chosen, classes=[0, 1])
    names, table = tuple(scores), torch.from_numpy(stacked(scores))
    parts = [
        sum_scores(table[own], torch.from_numpy(group[own]), 5, names)
        for own in (slice(0, 700), slice(700, None))
    ]
    expected = measured(4)
    sums = parts[0] + parts[1]
    for found in (metrics_from_sums(names, sums, 0).parity, parity_from_totals(names, sums.totals)):
        for name, own in expected.items():
            assert found[name].highest == own.highest
            for part in ("difference", "ratio"):
                for end in ("value", "low", "high"):
                    assert getattr(getattr(found[name], part), end) == pytest.approx(
                        getattr(getattr(own, part), end), abs=1e-9
                    )


def test_the_interval_of_a_ratio_covers_it() -> None:
    random, hits = np.random.default_rng(5), 0
    for _ in range(500):
        one, other = (
            mean_interval(Scored.of_sums(rows, chosen, chosen), Bounds(0.0, 1.0))
            for rows, chosen in ((150, random.binomial(150, 0.2)), (400, random.binomial(400, 0.5)))
        )
        found = ratio(one, other)
        hits += found.low <= 0.4 <= found.high
    assert hits >= 0.94 * 500


def test_the_interval_of_the_lowest_ratio_allows_for_the_choice() -> None:
    """Of four equal groups the lowest ratio is far below 1 by chance: the interval has 1."""
    random, hits = np.random.default_rng(6), 0
    for _ in range(200):
        chosen = random.binomial(200, 0.3, size=4)
        rates = {str(own): Scored.of_sums(200, count, count) for own, count in enumerate(chosen)}
        found = parity_measures(
            dict.fromkeys((SELECTED, MISSED, "false_positive_rate"), rates), 0.95
        )
        hits += found["demographic_parity"].ratio.high == 1.0
        assert found["demographic_parity"].difference.low >= 0.0
    assert hits >= 0.94 * 200
