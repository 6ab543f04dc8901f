"""Real processes that die: the run goes on after its last round, to the undisturbed run's model.

One run suffers all deaths, one after another: each costs the time to notice it and a new start.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from fedminmax.config.planned_runs import PlannedRun
from fedminmax.config.read import read_config
from fedminmax.network.flare.local import SERVER, LocalFederation
from fedminmax.network.server.log import Notice
from fedminmax.network.wire.site_rules import SiteRules
from tests.integration.disturbed_runs import finished_rounds, jobs_of
from tests.integration.other_code_at_south import HeldRounds
from tests.network.network_problem import SITES, plan_of

# The engine leaves its sockets to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning"),
    # Before any process starts.
    pytest.mark.usefixtures("held"),
    pytest.mark.slow,
]
ROUNDS = 12
# With all sites needed, no round goes on without the one that died.
EVERYONE = SiteRules(minimum_sites=len(SITES), reply_timeout=30.0, round_timeout=200.0)


def kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        process.kill()


def kill_only_a_sites_job(federation: LocalFederation) -> None:
    kill(jobs_of(federation, "south"))


def kill_a_site_with_all_its_processes(federation: LocalFederation) -> None:
    kill([*jobs_of(federation, "west"), federation.processes["west"]])


def kill_the_server(federation: LocalFederation) -> None:
    kill([federation.processes[SERVER]])


# By the last round before them: the next one is held until the blow has fallen.
Blows = dict[int, Callable[[LocalFederation], None]]
ALL: Blows = {
    3: kill_only_a_sites_job,
    6: kill_a_site_with_all_its_processes,
    9: kill_the_server,
}
# Who died makes no difference to what the server saved: for its larger state one death is enough.
# Without a gap the server that looks ahead goes on up to the last round.
RUNS: list[tuple[PlannedRun, Blows]] = [
    (PlannedRun("fedminmax", {}, ROUNDS), ALL),
    (PlannedRun("fedminmax-fast", {"optimality_gap": "0"}, ROUNDS), {6: kill_the_server}),
]


@pytest.mark.parametrize(("run", "blows"), RUNS, ids=[run.method for run, _ in RUNS])
def test_a_run_survives_deaths(
    run: PlannedRun, blows: Blows, federation: LocalFederation, folder: Path, held: HeldRounds
) -> None:
    held.hold(*(number + 1 for number in blows))
    config = read_config(folder / "fedminmax.toml")
    plan = replace(plan_of(config, [run], EVERYONE), run=run.method)
    losses = 0
    ahead = dict(blows)
    struck: list[int] = []
    for event in federation.run(plan):
        if isinstance(event, Notice):
            losses += "the job was lost" in event.words
            continue
        # The next blow falls when the one before was noticed and the run goes on again.
        if ahead and event.round.round >= min(ahead) and losses == len(struck):
            struck.append(min(ahead))
            ahead.pop(struck[-1])(federation)
            held.let_go(struck[-1] + 1)
    assert len(struck) == losses == len(blows)
    rounds = finished_rounds(federation, plan, folder)
    assert all(entry.sites.took_part == SITES for entry in rounds)
