"""A site's own table, read from a file: what is merged of it, held out, and hidden.

A site takes part in what it checked: another plan is refused before the table is read.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fedminmax.config.planned_runs import PlannedRun
from fedminmax.config.read import TableConfig, read_config
from fedminmax.config.schema import Protected
from fedminmax.config.sections import ModelSection
from fedminmax.core.errors import InputError
from fedminmax.data.tables.groups import merged_key
from fedminmax.data.tables.site_summary import summarise
from fedminmax.network.site.policy import SiteRows, group_counts, read_own_rows, read_rows
from fedminmax.network.site.preview import agree_to
from fedminmax.network.site.settings import SiteSettings
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.plan import NetworkPlan, plan_of_config
from fedminmax.network.wire.site_rules import SiteRules
from tests.network.network_problem import SITES, plan_of, write_tables
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


@pytest.fixture
def config(tmp_path: Path) -> TableConfig:
    return read_config(write_tables(tmp_path))


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
