"""A site takes part in what it checked: another plan is refused before the table is read."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fedminmax.config.planned_runs import PlannedRun
from fedminmax.config.read import TableConfig, read_config
from fedminmax.config.sections import ModelSection
from fedminmax.core.errors import InputError
from fedminmax.network.site.policy import read_rows
from fedminmax.network.site.preview import agree_to
from fedminmax.network.site.settings import SiteSettings
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.plan import NetworkPlan, plan_of_config
from fedminmax.network.wire.site_rules import SiteRules
from tests.network.network_problem import SITES, write_tables

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


def read(folder: Path, config: TableConfig, change: Change) -> int:
    """How many rows the north would train on, after it agreed to the configuration."""
    settings = agree_to(config, SiteSettings(folder / "north.csv"), "north")
    plan = change(plan_of_config(config, "run", SITES, SiteRules()))
    return len(read_rows(plan, settings, "north").train)


@pytest.mark.parametrize("what", ALLOWED)
def test_what_was_checked_is_taken_part_in(what: str, tmp_path: Path, config: TableConfig) -> None:
    assert read(tmp_path, config, ALLOWED[what]) == 48


@pytest.mark.parametrize("what", REFUSED)
def test_what_was_not_checked_is_refused(what: str, tmp_path: Path, config: TableConfig) -> None:
    (tmp_path / "north.csv").unlink()
    with pytest.raises(RefusedError, match=r"this site (checked|agreed to)"):
        read(tmp_path, config, REFUSED[what])


def test_without_an_agreement_the_table_would_be_read(tmp_path: Path, config: TableConfig) -> None:
    (tmp_path / "north.csv").unlink()
    plan = plan_of_config(config, "run", SITES, SiteRules())
    with pytest.raises(InputError, match="does not exist"):
        read_rows(plan, SiteSettings(tmp_path / "north.csv"), "north")
