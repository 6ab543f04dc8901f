"""Real processes whose sums are masked, with the keys of their kits: the unmasked run's numbers."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch

from fedminmax.config.planned_runs import PlannedRun
from fedminmax.network.flare.local import LocalFederation, local_federation
from fedminmax.network.server.log import LiveRound, run_folder
from fedminmax.network.server.run import read_members, run_plan
from fedminmax.network.site.settings import SiteSettings
from fedminmax.network.wire.plan import NetworkPlan
from fedminmax.training.round_record import ROUNDS_FILE, read_rounds
from tests.network.masked_problem import FOUR_SITES, FourSites, listed_config, masked_plan

# The engine leaves its sockets to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning"),
    pytest.mark.slow,
]
RUNS = (
    PlannedRun("fedminmax-fast", {}, 3),
    PlannedRun("fedminmax", {"learning_rate": "safe"}, 3),
    PlannedRun("fedavg", {}, 3),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("masked")


@pytest.fixture(scope="module")
def plan(folder: Path) -> NetworkPlan:
    found = masked_plan(listed_config(folder), FOUR_SITES, *RUNS)
    # With a ridge: in the common direction of dummies and bias rounding would decide.
    return replace(found, model=replace(found.model, ridge=1e-3))


@pytest.fixture(scope="module")
def federation(folder: Path) -> Iterator[LocalFederation]:
    tables = {site: SiteSettings(folder / f"{site}.csv") for site in FOUR_SITES}
    with local_federation(folder / "kits", tables) as running:
        yield running


def test_masked_runs_between_processes_equal_unmasked_ones(
    folder: Path, plan: NetworkPlan, federation: LocalFederation
) -> None:
    rounds = [event for event in federation.run(plan) if isinstance(event, LiveRound)]
    assert [live.round.sites.took_part for live in rounds] == [FOUR_SITES] * sum(
        r.rounds for r in RUNS
    )
    plain = replace(plan, secure_aggregation=None)
    assert run_plan(plain, FourSites(folder), folder / "plain").error is None
    for number in range(len(RUNS)):
        found = read_members(run_folder(federation.results(plan), plan, number))
        right = read_members(run_folder(folder / "plain", plan, number))
        torch.testing.assert_close(found, right, rtol=1e-9, atol=1e-9)


def test_a_round_waits_for_a_site_that_is_killed(
    folder: Path, plan: NetworkPlan, federation: LocalFederation
) -> None:
    longer = replace(plan, run="killed", runs=(replace(RUNS[1], rounds=40),))
    killed = False
    for event in federation.run(longer):
        if isinstance(event, LiveRound) and event.round.round >= 3 and not killed:
            killed = True
            process = federation.processes["east"]
            for member in (*process.children(recursive=True), process):
                psutil.Process(member.pid).kill()
    assert killed
    rounds = read_rounds(run_folder(federation.results(longer), longer, 0) / ROUNDS_FILE)
    assert [entry.round for entry in rounds] == list(range(1, 41))
    assert {entry.sites.took_part for entry in rounds} == {FOUR_SITES}
    plain = replace(longer, secure_aggregation=None)
    assert run_plan(plain, FourSites(folder), folder / "undisturbed").error is None
    found = read_members(run_folder(federation.results(longer), longer, 0))
    right = read_members(run_folder(folder / "undisturbed", longer, 0))
    torch.testing.assert_close(found, right, rtol=1e-9, atol=1e-9)
