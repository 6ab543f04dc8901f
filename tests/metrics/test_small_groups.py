"""A group that was too small in training is measured, and is never the worst."""

import math

import torch

from fedminmax.metrics.by_group import metric_by_group
from fedminmax.metrics.intervals import Bounds, Scored
from fedminmax.metrics.paired_change import paired_change
from fedminmax.metrics.sums import sum_scores


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
