"""Over a network, too, a group of a few rows in all does not decide the model.

Sites that merge their small groups train together, and nobody hears of the small ones.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedminmax import load_model
from fedminmax.config.planned_runs import PlannedRun
from fedminmax.config.read import TableConfig
from fedminmax.core.examples import Examples
from fedminmax.core.small_groups import MERGED_NAME, SmallGroupRule
from fedminmax.data.tables.load import load_federated_tables
from fedminmax.metrics.sums import score_rows
from fedminmax.network.server.agree import agree
from fedminmax.network.server.agreement import AGREEMENT_FILE, read_agreement
from fedminmax.network.server.log import ProgressReporter, run_folder
from fedminmax.network.server.run import read_members, run_plan
from fedminmax.network.server.sites import PlainSites
from fedminmax.network.site.site import Site
from fedminmax.network.wire.plan import NetworkPlan
from fedminmax.runs.network import collect_network_run
from fedminmax.training.round_record import ROUNDS_FILE, read_rounds
from tests.complaints import complaint_of
from tests.network.network_problem import AT_ONCE, DirectTransport, plan_of, simulated_members
from tests.network.small_group_tables import (
    COUNTS,
    MERGED,
    SMALL_NAMES,
    merging,
    write_small_groups,
)

LARGE = ("Anglian / age under 60", "Anglian / age 60 and over", "Basque / age under 60")
SMALL = ("Quechua / age under 60", "Quechua / age 60 and over", "Sami / age 60 and over")
MINIMUM = "minimum_size = 10"


@pytest.mark.parametrize("rule", ["by_size", "merge"])
def test_training_is_that_of_the_simulation(rule: str, tmp_path: Path) -> None:
    groups = f'{MINIMUM}\nsmall = "{rule}"'
    config = write_small_groups(tmp_path, groups=groups)
    runs = [PlannedRun("fedminmax", {"adversary_rate": "0.5"}, 4)]
    plan = plan_of(config, runs)
    outcome = run_plan(plan, DirectTransport(tmp_path), tmp_path / "run")
    assert (outcome.error, outcome.unmeasured) == (None, {})
    own = run_folder(tmp_path / "run", plan, 0)
    assert torch.equal(read_members(own), simulated_members(tmp_path, plan, 0, fused=False))
    rounds = read_rounds(own / ROUNDS_FILE)
    agreed = read_agreement(tmp_path / "run" / AGREEMENT_FILE)
    assert agreed is not None
    counts = agreed.rows(plan.sites).sum(dim=0)
    shares = (counts.double() / counts.sum()).tolist()
    if rule == "by_size":
        assert outcome.group_names == (LARGE[0], LARGE[1], LARGE[2], *SMALL)
        assert agreed.encoding.small_group_names == SMALL
        assert all(list(entry.weights[3:]) == shares[3:] for entry in rounds)
        # Whoever follows the run is not shown the risks of a few rows.
        news = ProgressReporter(plan, tmp_path / "run").collect([0]).live_rounds[-1]
        assert tuple(news.risks) == LARGE
        assert outcome.small_groups == news.small_groups == SMALL
    else:
        assert outcome.group_names == (*LARGE, MERGED_NAME)
        assert list(rounds[-1].weights) != pytest.approx(shares, abs=1e-3)


def test_merged_groups_are_measured_as_in_the_simulation(tmp_path: Path) -> None:
    groups = f'{MINIMUM}\nsmall = "merge"'
    config = write_small_groups(tmp_path, held_out=0.4, groups=groups)
    plan = plan_of(config, [PlannedRun("fedminmax", {}, 2)])
    assert run_plan(plan, DirectTransport(tmp_path), tmp_path / "run").error is None
    (results,) = collect_network_run(tmp_path / "run", plan, config, tmp_path / "out")
    saved = load_model(tmp_path / "out" / "model.safetensors")
    tables = load_federated_tables(config)
    assert results.merged is not None
    assert results.merged.groups == SMALL
    rows = Examples(
        *(
            torch.cat([getattr(part.examples, name) for part in tables.test])
            for name in ("x", "y", "group")
        )
    )
    merged = torch.cat([part.merged for part in tables.test])
    losses = score_rows(saved.model, rows, saved.encoding)["brier_risk"].numerators
    by_group = [
        (results.risk.by_group, rows.group),
        (results.merged.test.metrics["risk"].by_group, merged),
    ]
    for intervals, numbers in by_group:
        for number, interval in enumerate(intervals):
            of_group = losses[(numbers == number).numpy()]
            assert interval.rows == len(of_group) > 0
            assert interval.value == pytest.approx(of_group.mean(), rel=1e-5)


def test_the_rows_of_merged_groups_are_those_of_their_sites(tmp_path: Path) -> None:
    config = write_small_groups(tmp_path, held_out=0.0, groups=f'{MINIMUM}\nsmall = "merge"')
    plan = plan_of(config, [PlannedRun("fedminmax", {}, 1)])
    agreement = agree(plan, PlainSites(plan, DirectTransport(tmp_path)), tmp_path / "run")
    assert agreement.census.counts[:, -1].tolist() == [9, 3, 0]
    assert agreement.census.included.tolist() == [True] * 4
    kept = read_agreement(tmp_path / "run" / AGREEMENT_FILE)
    assert kept is not None
    assert kept.encoding == agreement.encoding


def test_a_run_stops_only_for_tiny_groups_that_play(tmp_path: Path) -> None:
    def start(groups: str) -> None:
        config = write_small_groups(tmp_path, held_out=0.0, groups=groups)
        assert config.schema.small_groups in (SmallGroupRule.BY_SIZE, SmallGroupRule.INCLUDE)
        plan = plan_of(config, [PlannedRun("fedminmax", {}, 1)])
        agree(plan, PlainSites(plan, DirectTransport(tmp_path)), tmp_path / groups[-6:-1])

    start(MINIMUM)
    words = complaint_of(lambda: start(f'{MINIMUM}\nsmall = "include"'))
    assert "has 4 training rows in all, at north, fewer than 5" in words


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
