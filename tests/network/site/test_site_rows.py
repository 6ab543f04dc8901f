"""A site's own table, read from a file: what is merged of it, held out, and hidden.

A site takes part in what it checked: another plan is refused before the table is read.

Small groups: nothing below the minimum is told of, and no more is merged than has to be.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedminmax.config.planned_runs import PlannedRun
from fedminmax.config.read import TableConfig
from fedminmax.config.schema import Protected, Schema, Target
from fedminmax.config.sections import ModelSection
from fedminmax.core.errors import InputError
from fedminmax.data.tables.groups import GroupKey, merged_key
from fedminmax.data.tables.parse_rows import FeatureRows, ParsedRows
from fedminmax.data.tables.site_summary import summarise
from fedminmax.network.site.policy import (
    SiteRows,
    group_counts,
    read_own_rows,
    read_rows,
    rows_to_measure,
    small_groups,
    within_policy,
)
from fedminmax.network.site.preview import agree_to
from fedminmax.network.site.settings import SiteSettings, SmallGroups
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.plan import NetworkPlan, plan_of_config
from fedminmax.network.wire.site_rules import SiteRules
from tests.network.network_problem import SITES, plan_of
from tests.network.small_group_tables import OVER, UNDER, merging, write_small_groups

SITES_GROUPS = {
    "north": {("Anglian", UNDER), ("Anglian", OVER), ("Basque", UNDER)},
    "south": {("Anglian", UNDER)},
    "west": {("Anglian", OVER), ("Basque", UNDER)},
}


def read(folder: Path, config: TableConfig, site: str) -> SiteRows:
    plan = plan_of(config, [PlannedRun("fedminmax", {}, 1)])
    return read_rows(plan, merging(folder, site), site)


@pytest.mark.parametrize("site", SITES_GROUPS)
def test_small_groups_of_a_table_are_merged(site: str, tmp_path: Path) -> None:
    config = write_small_groups(tmp_path)
    merged = {merged_key(config.schema)} if site != "west" else set()
    rows = read(tmp_path, config, site)
    assert set(group_counts(rows.train)) == SITES_GROUPS[site] | merged
    assert set(group_counts(rows.held_out)) <= SITES_GROUPS[site] | merged


def test_merging_moves_no_row_between_training_and_testing(tmp_path: Path) -> None:
    config = write_small_groups(tmp_path)
    plan = plan_of(config, [PlannedRun("fedminmax", {}, 1)])
    own = read_own_rows(plan, merging(tmp_path, "north"), "north")
    rows = read(tmp_path, config, "north")
    for before, after in ((own.train, rows.train), (own.held_out, rows.held_out)):
        assert len(before) > 0
        assert before.target.tolist() == after.target.tolist()
        doses = (part.features.quantities["dose"].tolist() for part in (before, after))
        assert next(doses) == next(doses)


def test_protected_columns_that_are_features_do_not_tell_of_small_groups(tmp_path: Path) -> None:
    config = write_small_groups(tmp_path, as_features=True)
    rows = read(tmp_path, config, "south")
    counts = group_counts(rows.train)
    merged, whole = counts[merged_key(config.schema)], len(rows.train)
    summary = summarise(rows.train, config.schema)
    # Anglian, Basque, Quechua, Sami, missing, not listed; the Basque fill the merged group up.
    assert summary.categories["origin"] == (whole - merged, 0, 0, 0, merged, 0)
    assert summary.quantities["age"].count == whole - merged
    assert summary.quantities["dose"].count == whole


def test_a_group_that_was_not_agreed_on_is_not_told_of(tmp_path: Path) -> None:
    schema = write_small_groups(tmp_path).schema
    origin = Protected("origin", values=("Anglian", "Basque", "Quechua"))
    listed = replace(schema, protected=(origin, schema.protected[1]))
    config = replace(write_small_groups(tmp_path), schema=listed)
    assert len(read(tmp_path, config, "north").train)
    # The reason is for the site alone: it is no refusal, whose words would go to the server.
    with pytest.raises(InputError, match="'origin' is 'Sami' in 3 rows") as caught:
        read(tmp_path, config, "south")
    assert not isinstance(caught.value, RefusedError)


def test_held_out_rows_keep_their_features(tmp_path: Path) -> None:
    config = write_small_groups(tmp_path, as_features=True)
    plan = plan_of(config, [PlannedRun("fedminmax", {}, 1)])
    own = read_own_rows(plan, merging(tmp_path, "south"), "south").held_out.features
    seen = read(tmp_path, config, "south").held_out.features
    assert own.codes["origin"].tolist() == seen.codes["origin"].tolist()
    assert own.quantities["age"].tolist() == seen.quantities["age"].tolist()


Change = Callable[[NetworkPlan], NetworkPlan]


ALLOWED: dict[str, Change] = {
    "the same": lambda plan: plan,
    "another name": lambda plan: replace(plan, run="again"),
    "fewer sites": lambda plan: replace(plan, sites=("north", "west")),
    "more site_rules": lambda plan: replace(plan, site_rules=SiteRules(round_timeout=1.0)),
    "fewer rounds": lambda plan: replace(plan, runs=(replace(plan.runs[0], rounds=2),)),
}
REFUSED: dict[str, Change] = {
    "more rounds": lambda plan: replace(plan, runs=(replace(plan.runs[0], rounds=4),)),
    "another rate": lambda plan: replace(
        plan, runs=(replace(plan.runs[0], options={"learning_rate": "0.9"}),)
    ),
    "another method": lambda plan: replace(plan, runs=(PlannedRun("fedavg", {}, 3),)),
    "a further run": lambda plan: replace(plan, runs=(*plan.runs, PlannedRun("fedavg", {}, 3))),
    "another model": lambda plan: replace(plan, model=ModelSection("mlp", (4,), "brier")),
    "other held-out rows": lambda plan: replace(plan, held_out=0.4),
    "another seed": lambda plan: replace(plan, seed=4),
}


def read_agreed(folder: Path, config: TableConfig, change: Change) -> int:
    """How many rows the north would train on, after it agreed to the configuration."""
    settings = agree_to(config, SiteSettings(folder / "north.csv"), "north")
    plan = change(plan_of_config(config, "run", SITES, SiteRules()))
    return len(read_rows(plan, settings, "north").train)


@pytest.mark.parametrize("what", ALLOWED)
def test_what_was_checked_is_taken_part_in(what: str, tmp_path: Path, config: TableConfig) -> None:
    assert read_agreed(tmp_path, config, ALLOWED[what]) == 48


@pytest.mark.parametrize("what", REFUSED)
def test_what_was_not_checked_is_refused(what: str, tmp_path: Path, config: TableConfig) -> None:
    (tmp_path / "north.csv").unlink()
    with pytest.raises(RefusedError, match=r"this site (checked|agreed to)"):
        read_agreed(tmp_path, config, REFUSED[what])


def test_without_an_agreement_the_table_would_be_read(tmp_path: Path, config: TableConfig) -> None:
    (tmp_path / "north.csv").unlink()
    plan = plan_of_config(config, "run", SITES, SiteRules())
    with pytest.raises(InputError, match="does not exist"):
        read_rows(plan, SiteSettings(tmp_path / "north.csv"), "north")


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
