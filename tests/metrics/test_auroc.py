"""AUROC from sums against scikit-learn, DeLong's variance of the records and true values."""

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import norm, rankdata
from sklearn.metrics import roc_auc_score

from fedminmax.metrics import auroc
from fedminmax.metrics.auroc import (
    area_change,
    area_interval,
    counts_of,
    counts_of_models,
    curve_of,
    exact_curve,
)
from fedminmax.metrics.by_group import AUROC, group_metrics
from fedminmax.metrics.row_scores import score_classes, stacked
from fedminmax.metrics.sums import metrics_from_sums, sum_scores

Values = NDArray[np.float64]
Sick = NDArray[np.bool_]


def drawn(
    seed: int, rows: int, spread: float, share: float, noise: float
) -> tuple[Sick, Values, Values]:
    """Outcomes, their true chances, and chances of a second model that errs."""
    random = np.random.default_rng(seed)
    odds = random.normal(math.log(share / (1 - share)), spread, rows)
    chances = 1 / (1 + np.exp(-odds))
    other = 1 / (1 + np.exp(-odds - random.normal(0, noise, rows)))
    return random.random(rows) < chances, chances, other


def counts(sick: Sick, *models: Values) -> NDArray[np.int64]:
    counted: NDArray[np.int64] = counts_of(
        np.stack(models, axis=1), sick, np.zeros(len(sick), np.int64), 1
    )[0]
    return counted


def placements(sick: Sick, scores: Values) -> tuple[Values, Values]:
    """By ranks, as in Sun and Xu's algorithm for DeLong's components."""
    ranks, positives = rankdata(scores), int(sick.sum())
    above = (ranks[sick] - rankdata(scores[sick])) / (len(sick) - positives)
    below = 1 - (ranks[~sick] - rankdata(scores[~sick])) / positives
    return above, below


def delong_error(sick: Sick, scores: Values, other: Values | None = None) -> float:
    parts = placements(sick, scores)
    if other is not None:
        parts = tuple(a - b for a, b in zip(parts, placements(sick, other), strict=True))  # type: ignore[assignment]
    return math.sqrt(sum(own.var(ddof=1) / len(own) for own in parts))


@pytest.mark.parametrize(
    ("spread", "share", "rows"),
    [(2, 0.3, 20_000), (0.2, 0.5, 20_000), (1, 0.01, 30_000), (4, 0.5, 900)],
)
def test_binning_costs_little_and_less_than_the_interval_has_for_it(
    spread: float, share: float, rows: int
) -> None:
    for seed in range(5):
        sick, chances, _ = drawn(seed, rows, spread, share, 0.1)
        curve = curve_of(counts(sick, chances), 0)
        error = abs(curve.area - roc_auc_score(sick, chances))
        assert error < 1.5e-3 if spread < 1 else error < 1e-3
        found = area_interval(curve)
        # Of few records the two binnings may agree by chance; what is left is little beside chance.
        assert error <= curve.rounding + 0.02 * (found.high - found.value)
        exact = exact_curve(chances, sick)
        assert exact.area == pytest.approx(roc_auc_score(sick, chances), abs=1e-12)
        assert exact.rounding == 0.0


def test_ties_certain_scores_and_a_single_class() -> None:
    sick = np.array([False, True] * 100)
    for scores in (
        np.full(200, 0.3),
        sick.astype(float),
        1.0 - sick,
        np.tile([0.3, 0.6, 0.9, 0.1], 50),
    ):
        curve = curve_of(counts(sick, scores.astype(float)), 0)
        assert curve.area == pytest.approx(roc_auc_score(sick, scores), abs=1e-12)
        assert curve.rounding == 0.0
    alone = area_interval(curve_of(counts(sick[::2], np.full(100, 0.5)), 0))
    assert math.isnan(alone.value)
    assert math.isnan(alone.low)


@pytest.mark.parametrize("rows", [2_000, 20_000])
def test_the_interval_is_delongs_where_records_are_many(rows: int) -> None:
    sick, chances, _ = drawn(3, rows, 1.5, 0.3, 0.1)
    found = area_interval(exact_curve(chances, sick))
    expected = 1.96 * delong_error(sick, chances)
    assert expected <= (found.high - found.low) / 2 <= 1.08 * expected


def test_it_covers_the_true_area_also_of_few_records() -> None:
    """The scores of both classes are normal: the area is Phi(d / sqrt 2)."""
    random, covered = np.random.default_rng(1), {}
    for positives, distance in ((50, 1.0), (8, 2.0), (8, 4.0), (200, 3.0)):
        truth, hits = float(norm.cdf(distance / math.sqrt(2))), 0
        for _ in range(400):
            sick = np.arange(5 * positives) < positives
            scores = norm.cdf(random.normal(sick * distance, 1.0) / 3)
            found = area_interval(curve_of(counts(sick, scores), 0))
            hits += found.low <= truth <= found.high
        covered[positives, distance] = hits / 400
    assert min(covered.values()) >= 0.93, covered


@pytest.mark.parametrize(
    ("spread", "rows", "noise"),
    [(2, 20_000, 0.2), (1, 4_000, 1.0), (0.3, 20_000, 0.1), (4, 5_000, 1.0)],
)
def test_the_change_is_delongs_of_the_pairs(spread: float, rows: int, noise: float) -> None:
    """Variances from cells are within a quarter of those from records, never much below."""
    sick, chances, other = drawn(5, rows, spread, 0.3, noise)
    own = counts(sick, chances, other)
    found = area_change(own)
    exact = roc_auc_score(sick, chances) - roc_auc_score(sick, other)
    assert abs(found.value - exact) < 1e-3
    assert found.low < exact < found.high
    expected = 1.96 * delong_error(sick, chances, other)
    assert (found.high - found.low) / 2 > 0.97 * expected
    # One artificial record may change by 1, as in other changes: that is all that is added.
    artificial = 1.1 * 1.96 * math.hypot(1 / sick.sum(), 1 / (~sick).sum()) * 1.1 + 2e-3
    assert (found.high - found.low) / 2 < 1.15 * expected + artificial
    assert (found.high - found.low) / 2 < 0.75 * 1.96 * math.hypot(
        delong_error(sick, chances), delong_error(sick, other)
    ) + artificial


def test_the_change_covers_the_truth() -> None:
    """Both models see a normal signal with noise of their own."""
    random, hits, truth = np.random.default_rng(2), 0, 0.0
    areas = [float(norm.cdf(1.5 / math.sqrt(2 * (1 + own)))) for own in (0.3, 0.6)]
    truth = areas[0] - areas[1]
    for _ in range(300):
        sick = random.random(600) < 0.3
        signal = random.normal(1.5 * sick, 1.0)
        models = [norm.cdf(signal + random.normal(0, math.sqrt(own), 600)) for own in (0.3, 0.6)]
        found = area_change(counts(sick, *models))
        hits += found.low <= truth <= found.high
    assert hits >= 0.94 * 300


def test_models_that_change_places_change_the_sign() -> None:
    sick, chances, other = drawn(7, 3_000, 1, 0.3, 0.5)
    third = chances**2
    own = counts(sick, chances, other, third)[None]
    forwards, backwards = (
        area_change(counts_of_models(own, pair, 3)[0]) for pair in ((0, 2), (2, 0))
    )
    assert forwards == backwards.negative
    np.testing.assert_array_equal(counts_of_models(own, (0, 1), 3)[0], counts(sick, chances, other))
    assert area_change(counts_of_models(own, (0, 0), 3)[0]).value == 0.0


def test_sums_of_parts_give_the_metric_of_all_records() -> None:
    sick, chances, _ = drawn(11, 3_000, 1.5, 0.3, 0.5)
    group = np.arange(3_000) % 3 * (np.arange(3_000) % 5 == 0)
    scores = score_classes(sick.astype(int), y_prob=chances, classes=[0, 1])
    names, table = tuple(scores), torch.from_numpy(stacked(scores))
    groups = torch.from_numpy(group)
    whole = sum_scores(table, groups, 3, names)
    parts = sum_scores(table[:900], groups[:900], 3, names) + sum_scores(
        table[900:], groups[900:], 3, names
    )
    assert torch.equal(whole.curves, parts.curves)
    found = metrics_from_sums(names, parts, 0).metrics[AUROC]
    exact = group_metrics(sick.astype(int), y_prob=chances, sensitive_features=group.astype(str))
    expected = exact.metrics[AUROC]
    assert found.worst_group == expected.worst_group
    assert expected.overall.value == pytest.approx(roc_auc_score(sick, chances), abs=1e-12)
    for name, own in expected.by_group.items():
        mine = group == int(name)
        assert own.value == pytest.approx(roc_auc_score(sick[mine], chances[mine]), abs=1e-12)
        assert found.by_group[name].value == pytest.approx(own.value, abs=1e-3)
        assert found.by_group[name].low <= own.value <= found.by_group[name].high
    assert found.worst is not None
    assert found.worst.high >= min(own.value for own in found.by_group.values())


def test_without_probabilities_or_with_three_classes_there_is_none() -> None:
    labels = np.arange(90) % 3
    found = group_metrics(labels, y_prob=np.eye(3)[labels], sensitive_features=["a"] * 90)
    assert AUROC not in found.metrics
    names = tuple(score_classes(labels, y_prob=np.eye(3)[labels]))
    table = torch.zeros(90, 2 * len(names), dtype=torch.float64)
    assert not sum_scores(table, torch.zeros(90, dtype=torch.int64), 1, names).curves.numel()


def test_cells_are_as_many_as_are_counted() -> None:
    random = np.random.default_rng(0)
    first, second = random.random((2, 5_000)) ** 8
    cells = auroc.cells_of(first, second)
    assert cells.min() >= 0
    assert cells.max() < auroc.CELLS
    mirrored = auroc.cells_of(second, first)
    assert (cells % auroc.DIFFERENCES + mirrored % auroc.DIFFERENCES == 2 * auroc.DOUBLINGS).all()
