"""The three iterates against plain means over a stored trajectory.

The tail starts at s = half of the largest power of two not above T, so (T + 1)/4 <= s <= T/2 for
T >= 2: it covers more than T/2 and at most 3 (T + 1)/4 of the T rounds.

Which groups' validation risks count, their standard errors, and which model stays the best.
"""

import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedminmax.core.iterates import (
    STANDARD_ITERATES,
    Iterate,
    Iterates,
    initial_iterates,
    tail_start,
)
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

LONGEST = 70
TRAJECTORY = np.random.default_rng(3).normal(size=(LONGEST, 2))
TAIL_STARTS = {1: 1, 2: 1, 3: 1, 4: 2, 7: 2, 8: 4, 15: 4, 16: 8, 31: 8, 32: 16, 63: 16, 64: 32}


def records(dtype: torch.dtype = torch.float64) -> list[Iterates]:
    """Return the record after each round, entry 0 before the first."""
    kept = [initial_iterates(torch.tensor([9.0, -9.0], dtype=dtype))]
    for theta in TRAJECTORY:
        kept.append(kept[-1].add(torch.tensor(theta, dtype=dtype)))
    return kept


def test_before_the_first_round_every_iterate_is_the_start() -> None:
    start = records()[0]
    assert all(start.parameters(which).tolist() == [9.0, -9.0] for which in STANDARD_ITERATES)


def test_average_and_last_for_every_number_of_rounds() -> None:
    kept = records()
    for rounds in range(1, LONGEST + 1):
        average = kept[rounds].parameters(Iterate.AVERAGE).numpy()
        np.testing.assert_allclose(average, TRAJECTORY[:rounds].mean(axis=0), atol=1e-15)
        assert kept[rounds].parameters(Iterate.LAST).tolist() == TRAJECTORY[rounds - 1].tolist()


def test_tail_average_for_every_number_of_rounds() -> None:
    kept = records()
    for rounds in range(1, LONGEST + 1):
        power = 1
        while 2 * power <= rounds:
            power *= 2
        first = max(1, power // 2)
        tail = kept[rounds].parameters(Iterate.TAIL_AVERAGE).numpy()
        expected = TRAJECTORY[first - 1 : rounds].mean(axis=0)
        np.testing.assert_allclose(tail, expected, atol=1e-14)


@pytest.mark.parametrize(("rounds", "first"), TAIL_STARTS.items())
def test_where_the_tail_starts(rounds: int, first: int) -> None:
    assert tail_start(rounds) == first


def test_the_tail_covers_more_than_half_and_about_three_quarters_at_most() -> None:
    for record in records()[2:]:
        covered = record.rounds - tail_start(record.rounds) + 1
        assert record.rounds / 2 < covered <= 3 * (record.rounds + 1) / 4


def test_an_earlier_record_stays_what_it_was() -> None:
    record = initial_iterates(torch.zeros(2, dtype=torch.float64))
    kept, seen = [], []
    for theta in TRAJECTORY:
        record = record.add(torch.from_numpy(theta))
        kept.append(record)
        seen.append([record.parameters(which).tolist() for which in STANDARD_ITERATES])
    again = [[one.parameters(which).tolist() for which in STANDARD_ITERATES] for one in kept]
    assert again == seen


def test_a_prolonged_run_equals_one_that_was_planned_longer() -> None:
    """A record knows no planned end: going on from round 37 meets the means over all 70."""
    record = records()[37]
    for theta in TRAJECTORY[37:]:
        record = record.add(torch.from_numpy(theta))
    average, tail = (record.parameters(w) for w in (Iterate.AVERAGE, Iterate.TAIL_AVERAGE))
    np.testing.assert_allclose(average.numpy(), TRAJECTORY.mean(axis=0), atol=1e-15)
    np.testing.assert_allclose(tail.numpy(), TRAJECTORY[31:].mean(axis=0), atol=1e-15)


def test_a_single_precision_model_is_averaged_in_double_precision() -> None:
    """1 + 2^-24 is lost in float32: half of 1 and 1 + 2^-23 would not be seen from a float32 sum.

    Summing 2^24 + 1 + 1 in float32 gives 2^24; in float64 the mean of three is exact.
    """
    record = initial_iterates(torch.zeros(1))
    for value in (2.0**24, 1.0, 1.0):
        record = record.add(torch.tensor([value]))
    got = record.parameters(Iterate.AVERAGE)
    assert got.dtype == torch.float32
    assert float(got) == float(torch.tensor((2.0**24 + 2.0) / 3.0))
    assert float(got) != float(torch.tensor(2.0**24 / 3.0))


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
