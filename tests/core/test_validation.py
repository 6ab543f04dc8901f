"""Which groups' validation risks count, their standard errors, and which model stays the best."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedminmax.core.validation import (
    MIN_VALIDATION_ROWS,
    NO_LOSSES,
    NOT_MEASURED,
    SMALL_GROUPS,
    LossSums,
    ValidationRisk,
    checked_share,
    no_best_model,
    standard_error,
    sum_losses,
    worst_risk,
)
from tests.complaints import complaint_of

ENOUGH = MIN_VALIDATION_ROWS


def sums_of(by_group: list[list[float]]) -> LossSums:
    losses = torch.tensor([loss for own in by_group for loss in own], dtype=torch.float64)
    sizes = torch.tensor([len(own) for own in by_group])
    group = torch.repeat_interleave(torch.arange(len(by_group)), sizes)
    return sum_losses(losses, group, len(by_group))


def worst_of(by_group: list[list[float]]) -> ValidationRisk:
    sums = sums_of(by_group)
    return worst_risk(sums, sums.count, 7)


@given(st.lists(st.floats(0.0, 2.0), min_size=2, max_size=50))
def test_the_standard_error_is_that_of_a_mean(losses: list[float]) -> None:
    total, squares = math.fsum(losses), math.fsum(loss**2 for loss in losses)
    expected = np.std(losses, ddof=1) / np.sqrt(len(losses))
    assert standard_error(total, squares, len(losses)) == pytest.approx(expected, abs=1e-7)


def test_the_worst_group_counts_with_its_standard_error() -> None:
    worst = worst_of([[0.1] * ENOUGH, [0.2, 0.4] * ENOUGH])
    assert (worst.round, worst.group) == (7, 1)
    assert worst.risk == pytest.approx(0.3)
    rows = 2 * ENOUGH
    assert worst.standard_error == pytest.approx(0.1 * math.sqrt(rows / (rows - 1) / rows))


def test_two_rows_do_not_rule() -> None:
    assert worst_of([[0.1] * ENOUGH, [2.0, 2.0]]).group == 0


def test_small_groups_count_as_one_once_they_have_rows_enough() -> None:
    half = ENOUGH // 2
    worst = worst_of([[0.1] * ENOUGH, [0.2] * half, [0.4] * half, []])
    assert worst.group == SMALL_GROUPS
    assert worst.risk == pytest.approx(0.3)
    assert worst_of([[0.1] * ENOUGH, [0.2] * half, [0.4] * (half - 1)]).group == 0


def test_without_a_large_group_all_rows_count_as_one() -> None:
    worst = worst_of([[0.0, 0.0], [0.3]])
    assert worst.group == SMALL_GROUPS
    assert worst.risk == pytest.approx(0.1)


def test_a_round_without_a_group_that_counts_or_with_an_infinite_loss_is_no_candidate() -> None:
    rows = torch.tensor([ENOUGH, ENOUGH])
    told = sums_of([[0.1] * ENOUGH, []])
    assert not worst_risk(told, rows, 1).is_measured
    assert not worst_risk(NO_LOSSES, rows, 1).is_measured
    assert not worst_of([[0.1] * ENOUGH, [math.inf] * ENOUGH]).is_measured
    start = no_best_model(torch.zeros(2))
    assert start.consider(torch.ones(2), NOT_MEASURED) is start


def test_a_tie_goes_to_the_earlier_model_and_small_gains_add_up() -> None:
    best = no_best_model(torch.zeros(1))
    chosen = []
    for number, risk in enumerate([0.5, 0.495, 0.491, 0.489, 0.6, 0.4]):
        best = best.consider(torch.tensor([float(number)]), ValidationRisk(number, risk, 0.1, 0))
        chosen.append(best.chosen.round)
        assert best.latest.risk == risk
    # A tenth of the standard error is 0.01: only 0.489 and 0.4 are lower by more.
    assert chosen == [0, 0, 0, 3, 3, 5]
    assert best.model.tolist() == [[5.0]]


def test_shares_that_cannot_be_set_aside() -> None:
    assert checked_share(0.5) == 0.5
    for share in (-0.1, 0.51, math.nan, True):
        assert "validation = " in complaint_of(partial(checked_share, share))
