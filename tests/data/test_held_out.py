"""Held-out rows: each stratum gives its share, nobody loses a group, names and seeds decide."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedminmax.core.examples import Examples
from fedminmax.core.randomness import Purpose
from fedminmax.data.partition import max_held_out, set_aside, split_strata

strata_of = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1)), max_size=80)


@given(strata_of, st.floats(0.0, 0.95), st.integers(0, 9))
def test_every_row_is_once_in_one_part_and_every_stratum_gives_its_share(
    rows: list[tuple[int, int]], share: float, seed: int
) -> None:
    strata = np.array(rows, np.int64).reshape(-1, 2).T
    train, test = split_strata(strata, share, seed=seed, site="north")
    assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(len(rows)))
    for stratum in set(rows):
        own = sum(row == stratum for row in rows)
        held = sum(rows[place] == stratum for place in test.tolist())
        if own == 1:
            assert held == 0
        else:
            assert abs(held - share * own) < 1 + 1e-6
    # What a server believes of a site that tells how many rows it trains on.
    assert len(test) <= max_held_out(len(train), share, 1)
    for group in {group for group, _ in rows}:
        held = sum(rows[place][0] == group for place in test.tolist())
        left = sum(rows[place][0] == group for place in train.tolist())
        assert held <= max_held_out(left, share, 2)


@given(strata_of, st.floats(0.0, 0.5), st.integers(0, 9))
def test_validation_rows_leave_every_stratum_some_and_every_order_its_own(
    rows: list[tuple[int, int]], share: float, seed: int
) -> None:
    group, label = (torch.tensor([row[part] for row in rows], dtype=torch.int64) for part in (0, 1))
    numbers = torch.arange(len(rows), dtype=torch.float64)
    train, validation = set_aside(Examples(numbers[:, None], label, group), share, seed, "2")
    places = [own.x[:, 0].long().tolist() for own in (train, validation)]
    assert sorted([*places[0], *places[1]]) == list(range(len(rows)))
    assert {rows[place] for place in places[0]} == set(rows)
    for stratum in set(rows):
        own = rows.count(stratum)
        held = sum(rows[place] == stratum for place in places[1])
        assert held == 0 if own == 1 else abs(held - share * own) < 1 + 1e-6


def test_test_rows_and_validation_rows_are_drawn_apart() -> None:
    strata = np.zeros((1, 100), np.int64)
    drawn = [
        split_strata(strata, 0.3, seed=0, site="north", purpose=why)[1].tolist() for why in Purpose
    ]
    assert drawn[Purpose.VALIDATION] != drawn[Purpose.FOLDS]


def test_a_site_gives_its_share_of_all_rows() -> None:
    strata = np.random.default_rng(0).integers(0, 3, (2, 1000))
    assert len(split_strata(strata, 0.2, seed=0, site="north")[1]) == 200


def test_seed_and_name_decide() -> None:
    strata = np.zeros((1, 100), np.int64)
    chosen = [
        split_strata(strata, 0.3, seed=seed, site=name)[1].tolist()
        for seed, name in ((0, "north"), (0, "north"), (1, "north"), (0, "south"))
    ]
    assert chosen[0] == chosen[1]
    assert chosen[0] != chosen[2]
    assert chosen[0] != chosen[3]


def test_over_many_seeds_every_row_is_held_out_equally_often() -> None:
    strata = np.array([[0] * 7 + [1] * 3 + [2] * 2])
    times = np.zeros(12)
    for seed in range(2000):
        times[split_strata(strata, 0.25, seed=seed, site="north")[1]] += 1
    # Four standard errors of a share of 0.25 over 2000 draws.
    assert np.abs(times / 2000 - 0.25).max() < 4 * np.sqrt(0.25 * 0.75 / 2000)
