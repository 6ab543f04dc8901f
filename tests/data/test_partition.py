"""Partitions as the paper's appendix describes them: nothing lost, nothing twice, right mixes.

Held-out rows: each stratum gives its share, nobody loses a group, names and seeds decide.
"""

import numpy as np
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from fedminmax.core.examples import Examples
from fedminmax.core.randomness import Purpose
from fedminmax.data.partition import (
    Setting,
    make_pairwise_different,
    max_held_out,
    partition_by_dirichlet,
    partition_by_setting,
    partition_equally,
    set_aside,
    split_strata,
)
from tests.complaints import complaint_of


def groups_of(counts: list[int], seed: int) -> Tensor:
    """Rows of these groups in a random order."""
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    return labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))]


def count_table(group: Tensor, parts: list[Tensor]) -> Tensor:
    """n_{a,k} by site and group."""
    groups = int(group.max()) + 1
    return torch.stack([torch.bincount(group[part], minlength=groups) for part in parts])


def assert_every_row_once(group: Tensor, parts: list[Tensor]) -> None:
    assert torch.equal(torch.sort(torch.cat(parts)).values, torch.arange(len(group)))


fashion_mnist_like = torch.arange(60_000) % 10


def test_esg_of_fashion_mnist_gives_1500_rows_150_per_class() -> None:
    parts = partition_by_setting(Setting.ESG, fashion_mnist_like, 40, seed=1)
    assert_every_row_once(fashion_mnist_like, parts)
    assert torch.equal(count_table(fashion_mnist_like, parts), torch.full((40, 10), 150))


def test_psg_of_fashion_mnist_gives_each_half_of_the_classes_to_20_sites() -> None:
    parts = partition_by_setting(Setting.PSG, fashion_mnist_like, 40, seed=1)
    assert_every_row_once(fashion_mnist_like, parts)
    has = count_table(fashion_mnist_like, parts) > 0
    first, second = has[:20], has[20:]
    assert bool(first[:, :5].all())
    assert not bool(first[:, 5:].any())
    assert bool(second[:, 5:].all())
    assert not bool(second[:, :5].any())
    assert len({len(part) for part in parts}) == 40


def test_ssg_of_fashion_mnist_gives_each_class_to_4_sites_of_different_size() -> None:
    parts = partition_by_setting(Setting.SSG, fashion_mnist_like, 40, seed=1)
    assert_every_row_once(fashion_mnist_like, parts)
    has = count_table(fashion_mnist_like, parts) > 0
    assert has.sum(dim=1).tolist() == [1] * 40
    assert has.sum(dim=0).tolist() == [4] * 10
    assert len({len(part) for part in parts}) == 40


def test_psg_with_two_groups_is_ssg() -> None:
    group = groups_of([500, 500], seed=0)
    one, other = (partition_by_setting(s, group, 40, seed=3) for s in (Setting.PSG, Setting.SSG))
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@given(
    counts=st.lists(st.integers(1, 60), min_size=1, max_size=5),
    sites=st.integers(1, 12),
    seed=st.integers(0, 99),
)
def test_esg_counts_and_sizes_differ_by_one_at_most(
    counts: list[int], sites: int, seed: int
) -> None:
    assume(sum(counts) >= sites)
    group = groups_of(counts, seed)
    parts = partition_equally(group, sites, seed)
    assert_every_row_once(group, parts)
    table = count_table(group, parts)
    assert int((table.max(dim=0).values - table.min(dim=0).values).max()) <= 1
    sizes = table.sum(dim=1)
    assert int(sizes.max() - sizes.min()) <= 1


@given(
    groups=st.integers(1, 4),
    per_group=st.integers(1, 4),
    rows=st.integers(80, 200),
    seed=st.integers(0, 99),
)
def test_ssg_has_one_group_per_site_and_pairwise_different_sizes(
    groups: int, per_group: int, rows: int, seed: int
) -> None:
    group = groups_of([rows] * groups, seed)
    parts = partition_by_setting(Setting.SSG, group, groups * per_group, seed)
    assert_every_row_once(group, parts)
    table = count_table(group, parts)
    assert (table > 0).sum(dim=1).tolist() == [1] * len(parts)
    different = len(set(table.sum(dim=1).tolist()))
    assert different == (len(parts) if per_group > 1 else 1)  # one site takes the whole group


@given(teams=st.lists(st.lists(st.integers(1, 9), min_size=2, max_size=4), min_size=1, max_size=4))
def test_pairwise_different_keeps_each_teams_rows(teams: list[list[int]]) -> None:
    roomy = [[size + 40 for size in team] for team in teams]
    separated = make_pairwise_different(roomy)
    assert [sum(team) for team in separated] == [sum(team) for team in roomy]
    flat = [size for team in separated for size in team]
    assert len(set(flat)) == len(flat)
    assert min(flat) >= 1


@given(
    counts=st.lists(st.integers(1, 60), min_size=1, max_size=4),
    sites=st.integers(1, 9),
    concentration=st.sampled_from([0.05, 1.0, 50.0]),
    seed=st.integers(0, 99),
)
def test_dirichlet_loses_no_row(
    counts: list[int], sites: int, concentration: float, seed: int
) -> None:
    assume(sum(counts) >= sites)
    group = groups_of(counts, seed)
    parts = partition_by_dirichlet(group, sites, concentration, seed)
    assert len(parts) == sites
    assert_every_row_once(group, parts)


def test_dirichlet_concentration_moves_from_single_groups_to_equal_mixes() -> None:
    group = groups_of([2000, 2000], seed=0)
    shares = []
    for concentration in (0.05, 500.0):
        table = count_table(group, partition_by_dirichlet(group, 10, concentration, seed=0))
        sizes = table.sum(dim=1).clamp(min=1)
        shares.append(float((table.max(dim=1).values / sizes * sizes).sum() / len(group)))
    assert shares[0] > 0.8
    assert shares[1] < 0.55


def test_seeds_decide_the_partition() -> None:
    group = groups_of([50, 50], seed=0)
    same = [partition_by_setting(Setting.SSG, group, 4, seed=s) for s in (5, 5, 6)]
    assert all(torch.equal(a, b) for a, b in zip(same[0], same[1], strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(same[0], same[2], strict=True))


def test_too_few_rows_are_refused_with_the_number_that_would_do() -> None:
    group = groups_of([10, 10], seed=0)
    message = complaint_of(lambda: partition_by_setting(Setting.SSG, group, 8, seed=0))
    assert "36" in message


def test_sites_that_cannot_be_shared_by_the_groups_are_refused() -> None:
    message = complaint_of(
        lambda: partition_by_setting(Setting.SSG, torch.arange(300) % 3, 40, seed=0)
    )
    assert "multiple of 3" in message


def test_a_gap_in_the_groups_is_named() -> None:
    message = complaint_of(
        lambda: partition_by_setting(Setting.ESG, torch.tensor([0, 2, 0, 2]), 2, seed=0)
    )
    assert "group 1" in message


def test_more_sites_than_rows_are_refused() -> None:
    assert "3 rows" in complaint_of(lambda: partition_equally(torch.tensor([0, 0, 0]), 4, seed=0))


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
