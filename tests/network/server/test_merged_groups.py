"""Sites that merge their small groups train together, and nobody hears of the small ones."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch

from fedminmax.config.planned_runs import PlannedRun
from fedminmax.config.read import TableConfig
from fedminmax.core.small_groups import MERGED_NAME
from fedminmax.network.server.agree import agree
from fedminmax.network.server.run import read_members, run_folder, run_plan
from fedminmax.network.server.sites import PlainSites
from fedminmax.network.site.site import Site
from fedminmax.network.wire.plan import NetworkPlan
from tests.network.network_problem import AT_ONCE, DirectTransport, plan_of
from tests.network.small_group_tables import (
    COUNTS,
    MERGED,
    SMALL_NAMES,
    merging,
    write_small_groups,
)


class ListeningTransport(DirectTransport):
    """Keeps all that leaves a site."""

    def __init__(self, folder: Path, *, merge: bool) -> None:
        super().__init__(folder)
        self.left: list[bytes] = []
        if merge:
            self.sites = {
                site: Site(site, merging(folder, site), folder / f"{site}-kept", tuple(COUNTS))
                for site in COUNTS
            }

    def answer(self, site: str, endpoint: str, payload: Mapping[str, object]) -> object:
        message = super().answer(site, endpoint, payload)
        assert isinstance(message, bytes)
        self.left.append(message)
        return message

    def tells_of(self, name: str) -> bool:
        """Whether a message has this name in it."""
        return any(name.encode() in message for message in self.left)


def job(config: TableConfig) -> NetworkPlan:
    return plan_of(config, [PlannedRun("fedminmax", {}, 3), PlannedRun("ditto", {}, 2)])


def test_the_server_sees_one_merged_group(tmp_path: Path) -> None:
    plan = job(write_small_groups(tmp_path, held_out=0.0))
    agreement = agree(
        plan, PlainSites(plan, ListeningTransport(tmp_path, merge=True)), tmp_path / "run"
    )
    assert agreement.encoding.group_names == (
        "Anglian / age under 60",
        "Anglian / age 60 and over",
        "Basque / age under 60",
        MERGED_NAME,
    )
    merged = [sum(COUNTS[site][group] for group in MERGED[site]) for site in plan.sites]
    assert agreement.census.counts[:, -1].tolist() == merged == [9, 23, 0]
    assert agreement.census.site_counts.tolist() == [99, 53, 50]


def test_training_equals_that_of_tables_merged_by_hand(tmp_path: Path) -> None:
    plan = job(write_small_groups(tmp_path, held_out=0.0))
    by_hand = tmp_path / "by-hand"
    write_small_groups(by_hand, held_out=0.0, by_hand=True)
    outcomes = [
        run_plan(plan, ListeningTransport(folder, merge=merge), folder / "run")
        for folder, merge in ((tmp_path, True), (by_hand, False))
    ]
    assert [outcome.error for outcome in outcomes] == [None, None]
    assert [outcome.group_names[-1] for outcome in outcomes] == [
        MERGED_NAME,
        "Zulu / age under 60",
    ]
    for number in range(len(plan.runs)):
        ours, expected = (
            read_members(run_folder(folder / "run", plan, number)) for folder in (tmp_path, by_hand)
        )
        assert torch.equal(ours, expected)


def test_no_message_has_the_name_of_a_small_group(tmp_path: Path) -> None:
    site_rules = replace(AT_ONCE, abort_below=1)
    plan = replace(job(write_small_groups(tmp_path)), site_rules=site_rules)
    silent, open_hearted = (ListeningTransport(tmp_path, merge=merge) for merge in (True, False))
    assert run_plan(plan, silent, tmp_path / "run").error is None
    assert run_plan(plan, open_hearted, tmp_path / "open").error is None
    assert silent.tells_of("Anglian")
    for name in SMALL_NAMES:
        assert open_hearted.tells_of(name)
        assert not silent.tells_of(name)
