"""Small groups: nothing below the minimum is told of, and no more is merged than has to be."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedminmax.config.schema import Protected, Schema, Target
from fedminmax.data.tables.groups import GroupKey, merged_key
from fedminmax.data.tables.parse_rows import FeatureRows, ParsedRows
from fedminmax.network.site.policy import (
    SiteRows,
    group_counts,
    rows_to_measure,
    small_groups,
    within_policy,
)
from fedminmax.network.site.settings import SiteSettings, SmallGroups
from fedminmax.network.wire.codec import RefusedError

SCHEMA = Schema(Target("y"), (), (Protected("sex"), Protected("smoker")))
MERGED = merged_key(SCHEMA)
KEYS: tuple[GroupKey, ...] = (
    ("Female", "no"),
    ("Female", "yes"),
    ("Male", "no"),
    ("Male", "yes"),
    (None, "no"),
)
GROUPS = st.lists(st.integers(0, len(KEYS) - 1), max_size=40)


def settings(minimum: int, small: SmallGroups = SmallGroups.MERGE) -> SiteSettings:
    return SiteSettings(Path("hospital.csv"), suppress_below=minimum, small_groups=small)


def rows_of(groups: list[int]) -> ParsedRows:
    """Rows whose target is their number."""
    return ParsedRows(
        FeatureRows(len(groups), {}, {}),
        np.arange(len(groups), dtype=np.float64),
        np.array(groups, dtype=np.int64),
        group_keys=KEYS,
        numbers=np.arange(1, len(groups) + 1),
    )


def site_rows(train: list[int], held_out: list[int] | None = None) -> SiteRows:
    return SiteRows(rows_of(train), rows_of(held_out or []))


def keys_of(rows: ParsedRows) -> list[GroupKey]:
    return [rows.group_keys[place] for place in rows.group.tolist()]


@given(groups=GROUPS, minimum=st.integers(1, 12))
def test_no_group_below_the_minimum_is_told_of_and_no_row_is_lost(
    groups: list[int], minimum: int
) -> None:
    before = Counter(KEYS[group] for group in groups)
    if 0 < len(groups) < minimum:
        with pytest.raises(RefusedError, match=f"fewer than {minimum} training rows in all"):
            within_policy(site_rows(groups), SCHEMA, settings(minimum))
        return
    merged = within_policy(site_rows(groups), SCHEMA, settings(minimum)).train
    after = group_counts(merged)
    assert all(count >= minimum for count in after.values())
    assert merged.target.tolist() == list(range(len(groups)))
    assert all(after[key] == before[key] for key in after if key != MERGED)
    gone = {key: count for key, count in before.items() if key not in after}
    assert after.get(MERGED, 0) == sum(gone.values())
    # No more than needed: one large group at most, the smallest, and only to fill up.
    large = [count for count in gone.values() if count >= minimum]
    small = sum(count for count in before.values() if count < minimum)
    if large:
        assert large == [min(count for count in before.values() if count >= minimum)]
        assert 0 < small < minimum


@given(train=GROUPS, held_out=GROUPS, minimum=st.integers(1, 8))
def test_held_out_rows_follow_their_groups(
    train: list[int], held_out: list[int], minimum: int
) -> None:
    if 0 < len(train) < minimum:
        return
    rows = within_policy(site_rows(train, held_out), SCHEMA, settings(minimum))
    told = set(keys_of(rows.train)) - {MERGED}
    expected = [KEYS[group] if KEYS[group] in told else MERGED for group in held_out]
    assert keys_of(rows.held_out) == expected
    assert rows.held_out.target.tolist() == list(range(len(held_out)))


def test_of_two_smallest_groups_the_first_by_name_is_merged() -> None:
    rows = within_policy(site_rows([3] * 5 + [0] * 5 + [4]), SCHEMA, settings(2)).train
    assert group_counts(rows) == {("Male", "yes"): 5, MERGED: 6}


def test_all_groups_may_be_small_if_they_are_enough_together() -> None:
    rows = within_policy(site_rows([0, 1, 2, 3]), SCHEMA, settings(4)).train
    assert group_counts(rows) == {MERGED: 4}


def test_a_refusal_names_no_group() -> None:
    with pytest.raises(RefusedError, match="a group has fewer than 3 rows here") as refused:
        within_policy(site_rows([0, 0, 0, 1]), SCHEMA, settings(3, SmallGroups.REFUSE))
    assert not any(str(value) in str(refused.value) for value in ("Female", "smoker", "yes"))


@given(groups=GROUPS, minimum=st.integers(1, 12))
def test_refusing_leaves_rows_as_they_are_unless_a_group_is_small(
    groups: list[int], minimum: int
) -> None:
    policy, rows = settings(minimum, SmallGroups.REFUSE), site_rows(groups)
    counts = Counter(KEYS[group] for group in groups)
    assert set(small_groups(rows.train, policy)) == {
        key for key, count in counts.items() if count < minimum
    }
    if all(count >= minimum for count in counts.values()):
        assert within_policy(rows, SCHEMA, policy) is rows


@given(groups=GROUPS, minimum=st.integers(1, 12), known=st.sets(st.sampled_from(KEYS)))
def test_only_held_out_rows_of_known_and_large_groups_are_measured(
    groups: list[int], minimum: int, known: set[GroupKey]
) -> None:
    measured = rows_to_measure(rows_of(groups), known, settings(minimum))
    counts = Counter(groups)
    expected = [
        row for row, group in enumerate(groups) if counts[group] >= minimum and KEYS[group] in known
    ]
    assert measured.target.tolist() == expected
    assert keys_of(measured) == [KEYS[groups[row]] for row in expected]
