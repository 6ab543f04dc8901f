"""Who takes part: max(ceil(C K), 1) sites, without repetition, by seed and round alone."""

from collections import Counter
from math import comb

import pytest
import torch

from fedminmax.core.messages import Census, RoundKey
from fedminmax.training.one_round import draw_participants


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
