"""Metrics by group against loops over rows, Fairlearn's and scikit-learn's own functions.

A group that was too small in training is measured, and is never the worst.
"""

import json
import math
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import torch
from fairlearn.metrics import (
    MetricFrame,
    false_negative_rate,
    false_positive_rate,
    selection_rate,
)
from sklearn.metrics import accuracy_score, brier_score_loss, mean_absolute_error

from fedminmax.metrics import group_metrics, regression_group_metrics
from fedminmax.metrics.by_group import group_metrics_as_markdown, metric_by_group
from fedminmax.metrics.intervals import Bounds, Estimate, Scored
from fedminmax.metrics.paired_change import paired_change
from fedminmax.metrics.sums import sum_scores
from tests.complaints import complaint_of

GENERATOR = np.random.default_rng(0)
ROWS = 600
group_of_row = GENERATOR.choice(["a", "b", "c"], ROWS, p=[0.5, 0.3, 0.2])
PROBABILITY = GENERATOR.random(ROWS)
Y = (GENERATOR.random(ROWS) < PROBABILITY**2).astype(int)
PREDICTED = (PROBABILITY > 0.5).astype(int)
FOUND = group_metrics(Y, y_prob=PROBABILITY, sensitive_features=group_of_row)


def test_values_are_loops_over_the_groups_rows() -> None:
    assert FOUND.counts == {name: int((group_of_row == name).sum()) for name in "abc"}
    for name in "abc":
        right, brier, excess, confidence = [], [], [], []
        for row in range(ROWS):
            if group_of_row[row] == name:
                p, y = PROBABILITY[row], Y[row]
                right.append(PREDICTED[row] == y)
                brier.append((p - y) ** 2 + ((1 - p) - (1 - y)) ** 2)
                excess.append(p - y)
                confidence.append(max(p, 1 - p) - right[-1])
        expected = {
            "accuracy": right,
            "brier_risk": brier,
            "calibration": excess,
            "overconfidence": confidence,
        }
        for metric, values in expected.items():
            assert FOUND.metrics[metric].by_group[name].value == pytest.approx(np.mean(values))


@pytest.mark.parametrize(
    ("metric", "function"),
    [
        ("accuracy", accuracy_score),
        ("selection_rate", selection_rate),
        ("false_positive_rate", false_positive_rate),
        ("false_negative_rate", false_negative_rate),
    ],
)
def test_values_are_those_of_other_libraries(metric: str, function: Any) -> None:
    found = FOUND.metrics[metric]
    assert found.overall.value == pytest.approx(function(Y, PREDICTED))
    values = {
        name: function(Y[group_of_row == name], PREDICTED[group_of_row == name]) for name in "abc"
    }
    assert {name: one.value for name, one in found.by_group.items()} == pytest.approx(values)
    assert found.difference.value == pytest.approx(max(values.values()) - min(values.values()))


def test_the_worst_group_is_the_one_that_fares_worst() -> None:
    for metric, of_value in {
        "accuracy": lambda value: -value,
        "brier_risk": lambda value: value,
        "false_negative_rate": lambda value: value,
        "calibration": abs,
    }.items():
        found = FOUND.metrics[metric]
        worst = max(found.by_group, key=lambda name: of_value(found.by_group[name].value))
        assert found.worst_group == worst
        assert found.worst is not None
        assert found.worst.value == found.by_group[worst].value
    assert FOUND.metrics["selection_rate"].worst is None


def test_intervals_surround_their_values() -> None:
    def check(estimate: Estimate) -> None:
        assert estimate.low <= estimate.value <= estimate.high

    for metric in FOUND.metrics.values():
        check(metric.overall)
        check(metric.difference)
        for estimate in metric.by_group.values():
            check(estimate)
        widths = {name: one.high - one.low for name, one in metric.by_group.items()}
        assert widths["c"] > widths["a"]  # the smallest group is the least sure
    wide = group_metrics(Y, y_prob=PROBABILITY, sensitive_features=group_of_row, confidence=0.99)
    assert wide.metrics["accuracy"].overall.low < FOUND.metrics["accuracy"].overall.low


def test_a_proportion_has_the_width_of_the_normal_approximation() -> None:
    many = group_metrics(Y, y_pred=PREDICTED, sensitive_features=None)
    found = many.metrics["accuracy"].overall
    deviation = np.sqrt(found.value * (1 - found.value) / ROWS)
    assert found.high - found.low == pytest.approx(2 * 1.96 * deviation, rel=0.1)


def test_groups_of_few_rows_are_neither_worst_nor_in_the_gap() -> None:
    """Group c is wrong in all of its 3 rows, b in half of 60, a in none of 70."""
    groups = ["a"] * 70 + ["b"] * 60 + ["c"] * 3
    right = np.array([1] * 100 + [0] * 30 + [0] * 3)
    found = group_metrics(
        np.ones(133, int), y_pred=right, classes=[0, 1], sensitive_features=groups
    )
    accuracy = found.metrics["accuracy"]
    assert accuracy.worst_group == "b"
    assert accuracy.difference.value == pytest.approx(0.5)
    assert accuracy.by_group["c"].value == 0.0
    assert accuracy.by_group["c"].high > 0.7
    assert group_metrics_as_markdown(found).splitlines()[-1].startswith("| c | 3 | 0.000")
    # A rate counts the rows that it is about: no group has 50 rows of the other class.
    assert found.metrics["false_positive_rate"].worst_group is None
    alone = group_metrics([0, 1], y_pred=[1, 1], sensitive_features=["a", "b"])
    assert alone.metrics["accuracy"].worst is None
    assert np.isnan(alone.metrics["accuracy"].difference.value)


def test_a_group_without_negatives_has_no_false_positive_rate() -> None:
    found = group_metrics(
        [1, 1, 0, 0] * 50, y_pred=[1, 0, 1, 0] * 50, sensitive_features=list("aabb") * 50
    )
    rate = found.metrics["false_positive_rate"]
    assert np.isnan(rate.by_group["a"].value)
    assert rate.worst_group == "b"
    assert np.isnan(rate.difference.value)
    assert "| a | 100 |" in group_metrics_as_markdown(found)
    assert "nan" not in group_metrics_as_markdown(found)


def test_many_classes_of_words() -> None:
    classes = ["cat", "cow", "dog"]
    p = np.array([[0.2, 0.5, 0.3], [0.6, 0.2, 0.2], [0.1, 0.1, 0.8]])
    found = group_metrics(["cow", "dog", "dog"], y_prob=p, classes=classes, sensitive_features=None)
    assert "selection_rate" not in found.metrics
    brier = ((p - np.eye(3)[[1, 2, 2]]) ** 2).sum(axis=1).mean()
    assert found.metrics["brier_risk"].overall.value == pytest.approx(brier)
    theirs = brier_score_loss(["cow", "dog", "dog"], p, labels=classes, scale_by_half=False)
    assert brier == pytest.approx(theirs)
    assert found.metrics["overconfidence"].overall.value == pytest.approx(1.9 / 3 - 2 / 3)
    dogs = group_metrics(
        ["cow", "dog", "dog"],
        y_prob=p,
        classes=classes,
        positive="dog",
        sensitive_features=None,
    )
    assert dogs.metrics["selection_rate"].overall.value == pytest.approx(1 / 3)
    assert dogs.metrics["false_negative_rate"].overall.value == pytest.approx(1 / 2)
    assert dogs.metrics["calibration"].overall.value == pytest.approx(1.3 / 3 - 2 / 3)


def test_regression() -> None:
    y, predicted = GENERATOR.normal(size=ROWS), GENERATOR.normal(size=ROWS)
    found = regression_group_metrics(y, predicted, sensitive_features=group_of_row)
    own = group_of_row == "b"
    values = {name: metric.by_group["b"].value for name, metric in found.metrics.items()}
    assert values == pytest.approx(
        {
            "squared_error": np.mean((y[own] - predicted[own]) ** 2),
            "absolute_error": mean_absolute_error(y[own], predicted[own]),
            "mean_error": np.mean(predicted[own] - y[own]),
        }
    )


def test_groups_and_gap_are_those_of_fairlearns_frame() -> None:
    frame = MetricFrame(
        metrics=accuracy_score, y_true=Y, y_pred=PREDICTED, sensitive_features=group_of_row
    )
    assert frame.by_group.to_dict() == pytest.approx(
        {name: own.value for name, own in FOUND.metrics["accuracy"].by_group.items()}
    )
    assert frame.difference() == pytest.approx(FOUND.metrics["accuracy"].difference.value)


def test_the_record_is_plain_data_and_the_same_each_time() -> None:
    again = group_metrics(Y, y_prob=PROBABILITY, sensitive_features=group_of_row)
    assert json.dumps(asdict(again)) == json.dumps(asdict(FOUND))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "neither y_pred nor y_prob"),
        ({"y_pred": [1]}, "y_pred has shape (1,) for 3 rows"),
        ({"y_prob": np.ones((3, 3)) / 3}, "shape (3, 3) for 3 rows and 2 classes"),
        ({"y_prob": np.ones((3, 2))}, "do not sum to 1"),
        ({"y_prob": np.ones((3, 2)) / 2, "classes": [1, 2]}, "label 0 in row 0 is not one of"),
        ({"y_pred": [0, 1, 1], "confidence": 1.0}, "confidence = 1"),
        ({"y_prob": [0.1, 0.5, 0.2], "positive": 7}, "positive = 7 is not one of the classes"),
    ],
)
def test_what_is_refused(arguments: dict[str, Any], words: str) -> None:
    assert words in complaint_of(
        lambda: group_metrics([0, 1, 1], sensitive_features=list("aab"), **arguments)
    )


def test_one_group_with_enough_rows_is_not_called_the_worst_of_several() -> None:
    enough, few = Scored(153, 0.2, 10.0), Scored(47, 0.9, 10.0)
    found = metric_by_group("brier_risk", {"m": enough, "f": few}, confidence=0.95)
    assert found.worst_group is None
    assert math.isnan(found.difference.value)
    alone = metric_by_group("brier_risk", {"m": enough}, confidence=0.95)
    assert alone.worst_group == "m"


def test_it_is_neither_the_worst_nor_in_the_gap() -> None:
    scored = {"a": Scored(100, 0.9, 90.0), "b": Scored(90, 0.7, 63.0), "c": Scored(80, 0.2, 16.0)}
    everyone = metric_by_group("accuracy", scored, 0.95)
    assert (everyone.worst_group, round(everyone.difference.value, 9)) == ("c", 0.7)
    found = metric_by_group("accuracy", scored, 0.95, small=["c"])
    assert (found.worst_group, round(found.difference.value, 9)) == ("b", 0.2)
    assert found.by_group == everyone.by_group


def test_the_change_of_the_worst_is_that_of_others() -> None:
    # After and before: group 0 goes from 1 to 0.5, group 1 stays at 2, and group 2 at 0.25.
    rows = torch.tensor([[0.5, 1.0]] * 60 + [[2.0, 2.0]] * 60 + [[0.25, 0.25]] * 60)
    sums = sum_scores(rows, torch.repeat_interleave(torch.arange(3), 60), 3)
    assert paired_change(sums, Bounds(0.0, 2.0)).worst.value == 0.0
    assert paired_change(sums, Bounds(0.0, 2.0), small=[1]).worst.value == -0.5
    assert math.isnan(paired_change(sums, Bounds(0.0, 2.0), small=[1, 2]).worst.value)
