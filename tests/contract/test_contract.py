"""Every method keeps the contract that ``fedminmax.testing`` offers to authors of new ones.

One pass over the pooled rows equals one reply per site, for any table with empty cells.

Who takes part: max(ceil(C K), 1) sites, without repetition, by seed and round alone.

A ridge by the number, where the formula is short; and what it does not touch.

Rows of zeros have no gradient: each step of rate eta multiplies the model by 1 - eta m.
"""

from collections import Counter
from math import comb

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedminmax.core.errors import InputError
from fedminmax.core.messages import Census, RoundKey
from fedminmax.methods.catalogue import BUILT_IN
from fedminmax.testing import Case, Check, checks_for
from fedminmax.testing.case import zero_rows
from fedminmax.testing.replies import check_fused_equals_plain
from fedminmax.training.progress import draw_participants
from fedminmax.training.train import train
from tests.contract.cases import EVERY, FAST, ONE_STEP, for_each
from tests.problems import Problem, softmax_problems

PAIRS = {
    f"{case.label}-{check.__name__}": (case, check) for case in EVERY for check in checks_for(case)
}


@pytest.mark.parametrize(("case", "check"), PAIRS.values(), ids=PAIRS)
def test_every_method_keeps_it(case: Case, check: Check) -> None:
    check(case)


def test_every_method_has_a_row() -> None:
    assert {case.card.key for case in EVERY} == set(BUILT_IN)


PARTICIPATION = st.sampled_from([1.0, 0.5])


@for_each(ONE_STEP)
@settings(max_examples=8)
@given(problem=softmax_problems(), participation=PARTICIPATION)
def test_a_dozen_rounds_agree(case: Case, problem: Problem, participation: float) -> None:
    """Fifty on one table are in the contract; here it is the tables that differ."""
    check_fused_equals_plain(case, problem, participation, rounds=12)


@for_each(FAST)
@settings(max_examples=4)
@given(problem=softmax_problems(), participation=PARTICIPATION)
def test_a_few_rounds_of_looking_ahead_agree(
    case: Case, problem: Problem, participation: float
) -> None:
    check_fused_equals_plain(case, problem, participation)


def census(sites: int) -> Census:
    return Census(torch.ones(sites, 2, dtype=torch.int64))


@pytest.mark.parametrize(
    ("sites", "share", "wanted"),
    [
        (40, 1.0, 40),
        (40, 0.1, 4),
        (10, 0.25, 3),
        (7, 0.5, 4),
        (40, 0.001, 1),
        (1, 0.3, 1),
        (3, 0.99, 3),
        (25, 0.28, 7),  # .28 * 25 is 7.000000000000001 in floating point
        (100, 0.07, 7),
        (100, 0.55, 55),
    ],
)
def test_number_of_participants(sites: int, share: float, wanted: int) -> None:
    assert len(draw_participants(census(sites), share, RoundKey(0, 1))) == wanted


def test_sites_without_rows_are_never_drawn() -> None:
    counts = torch.tensor([[1, 1], [0, 0], [1, 0], [0, 0], [0, 2]])
    for number in range(20):
        drawn = draw_participants(Census(counts), 0.5, RoundKey(0, number))
        assert len(drawn) == 2
        assert set(drawn) <= {0, 2, 4}


def test_draws_are_uniform() -> None:
    """3 of 6 sites in 4000 rounds: each subset's count is binomial with p = 1/20."""
    rounds = 4000
    drawn = Counter(draw_participants(census(6), 0.5, RoundKey(0, n)) for n in range(rounds))
    subsets = comb(6, 3)
    expected, spread = rounds / subsets, (rounds / subsets * (1 - 1 / subsets)) ** 0.5
    assert len(drawn) == subsets
    assert all(abs(count - expected) < 5 * spread for count in drawn.values())


RIDGE, RATE, EPOCHS = 0.5, 0.3, 3
EXACT = {"FedMinMax": 1 - RATE * RIDGE, "FedAvg": (1 - RATE * RIDGE) ** EPOCHS}
METHODS = {case.label: case.full_batch for case in EVERY}


@pytest.mark.parametrize("label", EXACT)
def test_two_rounds_shorten_the_model_by_the_formula(label: str) -> None:
    federation = zero_rows(RIDGE)
    *_, last = train(federation, METHODS[label], rounds=2)
    ratios = last.progress.state.parameters / federation.initial_parameters
    assert ratios.tolist() == pytest.approx([EXACT[label] ** 2] * 4, rel=1e-12)


def test_risks_are_reported_without_it() -> None:
    done = next(train(zero_rows(RIDGE), METHODS["FedMinMax"], rounds=1))
    assert done.risks.tolist() == pytest.approx([float(torch.tensor(2.0).log())] * 2)


def test_a_run_does_not_go_on_with_another_ridge() -> None:
    method = METHODS["FedMinMax"]
    done = next(train(zero_rows(0.1), method, rounds=1))
    with pytest.raises(InputError, match="another ridge"):
        train(zero_rows(0.2), method, rounds=2, resume=done.progress)
