"""Real processes that die: the run goes on after its last round, to the undisturbed run's model.

One federation serves the whole file; every test has a run of its own in it.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch

from fedminmax.data.tables.config import read_config
from fedminmax.federation.flare_local import SERVER, LocalFederation, local_federation
from fedminmax.federation.network_log import ROUNDS_FILE, read_network_rounds
from fedminmax.federation.network_plan import Patience, PlannedRun
from fedminmax.federation.network_run import read_members, run_folder
from fedminmax.federation.site_settings import SiteSettings
from tests.federation.network_problem import SITES, plan_of, simulated_members, write_tables

# The engine leaves its sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning")
# Enough that a fast machine is still at it when the blow falls.
ROUNDS = 400
ROUND_OF_DEATH = 10
# With all sites needed, no round goes on without the one that died.
EVERYONE = Patience(minimum_sites=len(SITES), seconds_per_answer=30.0, give_up_after=200.0)


def kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        process.kill()


def kill_the_server(federation: LocalFederation) -> None:
    kill([federation.processes[SERVER]])


def kill_a_site_with_all_its_processes(federation: LocalFederation) -> None:
    site = federation.processes["south"]
    kill([*site.children(recursive=True), site])


def kill_only_a_sites_job(federation: LocalFederation) -> None:
    kill(federation.processes["south"].children(recursive=True))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("faults")
    write_tables(path)
    return path


@pytest.fixture(scope="module")
def federation(folder: Path) -> Iterator[LocalFederation]:
    tables = {site: SiteSettings(folder / f"{site}.csv") for site in SITES}
    with local_federation(folder / "kits", tables) as running:
        yield running


@pytest.mark.parametrize(
    "disturb", [kill_only_a_sites_job, kill_a_site_with_all_its_processes, kill_the_server]
)
def test_the_run_goes_on_to_the_undisturbed_model(
    disturb: Callable[[LocalFederation], None], federation: LocalFederation, folder: Path
) -> None:
    config = read_config(folder / "fedminmax.toml")
    plan = plan_of(config, [PlannedRun("fedminmax", {}, ROUNDS)], EVERYONE)
    plan = replace(plan, run=disturb.__name__)
    said: list[str] = []
    disturbed = False
    for _, entry in federation.run(plan, said.append):
        if entry.round >= ROUND_OF_DEATH and not disturbed:
            disturbed = True
            disturb(federation)
    kept = run_folder(federation.results(plan), plan, 0)
    torch.testing.assert_close(
        read_members(kept),
        simulated_members(folder, plan, 0, fused=True),
        rtol=1e-9,
        atol=1e-9,
    )
    rounds = read_network_rounds(kept / ROUNDS_FILE)
    assert [entry.round for entry in rounds] == list(range(1, ROUNDS + 1))
    assert all(entry.took_part == SITES for entry in rounds)
    assert "the job was lost" in said[0]


def test_a_site_that_hangs_is_left_out_after_one_timeout_and_comes_back(
    federation: LocalFederation, folder: Path
) -> None:
    config = read_config(folder / "fedminmax.toml")
    patience = Patience(seconds_per_answer=3.0, rounds_left_out=5)
    plan = plan_of(config, [PlannedRun("fedminmax", {}, ROUNDS)], patience)
    plan = replace(plan, run="hangs")
    stopped: list[psutil.Process] = []
    hung = back = 0
    for _, entry in federation.run(plan):
        if entry.round >= ROUND_OF_DEATH and not stopped:
            stopped = federation.processes["south"].children(recursive=True)
            for process in stopped:
                process.suspend()
        if not hung and "did not answer within 3 seconds" in entry.refused.get("south", ""):
            hung = entry.round
            for process in stopped:
                process.resume()
        if hung and not back and entry.took_part == SITES:
            back = entry.round
    rounds = read_network_rounds(run_folder(federation.results(plan), plan, 0) / ROUNDS_FILE)
    assert hung
    assert back > hung + patience.rounds_left_out
    assert all(rounds[place].took_part == ("north", "west") for place in range(hung - 1, hung + 4))
    assert rounds[-1].took_part == SITES
