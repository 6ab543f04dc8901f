"""Real processes: sites that hang, a group that nobody tells of, a server whose disk is full.

One federation serves the whole file; every test has a run of its own in it.
"""

import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from fedminmax.config.planned_runs import PlannedRun
from fedminmax.config.read import read_config
from fedminmax.network.flare.local import SERVER, LocalFederation
from fedminmax.network.server.log import Notice
from fedminmax.network.server.run import OUTCOME_FILE
from fedminmax.network.wire.plan import NetworkPlan
from fedminmax.network.wire.site_rules import SiteRules
from fedminmax.training.checkpoint import checkpoint_paths
from tests.integration.disturbed_runs import (
    finished_rounds,
    jobs_of,
    kept_run,
    saved_round,
    stopped_run,
)
from tests.integration.other_code_at_south import HeldRounds
from tests.network.network_problem import SITES, plan_of, write_tables

# The engine leaves its sockets to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning"),
    # Before any process starts.
    pytest.mark.usefixtures("held"),
    pytest.mark.slow,
]
ROUNDS = 60
ROUND_OF_THE_FAULT = 10
SECONDS_PER_ANSWER = 5.0
ROUNDS_BETWEEN_COUNTS = 20
# South alone has the third group.
GROUPS = ("Female", "Male", "Other")
OTHER = GROUPS.index("Other")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tables")
    write_tables(path)
    table = path / "south.csv"
    head, *lines = table.read_text().splitlines()
    lines[:20] = [line.replace("Female", GROUPS[OTHER]) for line in lines[:20]]
    table.write_text("\n".join([head, *lines]) + "\n")
    return path


def plan_named(name: str, folder: Path, site_rules: SiteRules) -> NetworkPlan:
    config = read_config(folder / "fedminmax.toml")
    plan = plan_of(config, [PlannedRun("fedminmax", {}, ROUNDS)], site_rules)
    return replace(plan, run=name)


def test_a_site_that_hangs_is_left_out_and_its_group_waits_until_it_is_back(
    federation: LocalFederation, folder: Path, held: HeldRounds
) -> None:
    site_rules = SiteRules(reply_timeout=SECONDS_PER_ANSWER, skip_rounds=5)
    plan = plan_named("hangs", folder, site_rules)
    # So that the site certainly stands still in this round, and not in a later one.
    held.hold(ROUND_OF_THE_FAULT)
    still: list[psutil.Process] = []
    hung = threads = 0
    for event in federation.run(plan):
        if isinstance(event, Notice):
            continue
        entry = event.round
        if entry.round % ROUNDS_BETWEEN_COUNTS == 0:
            threads = max(threads, *threads_of(jobs_of(federation, SERVER)))
        if entry.round == ROUND_OF_THE_FAULT - 1:
            hold(still, jobs_of(federation, "south"))
            held.let_go(ROUND_OF_THE_FAULT)
        if not hung and "did not answer within 5 seconds" in entry.sites.refused.get("south", ""):
            hung = entry.round
            for job in still:
                job.resume()
    assert hung == ROUND_OF_THE_FAULT
    # A thread for each reply would be several hundreds by now.
    assert 0 < threads < ROUNDS
    rounds = finished_rounds(federation, plan, folder)
    back = hung + site_rules.skip_rounds + 1
    for entry in rounds:
        gone = hung <= entry.round < back
        assert entry.sites.took_part == (("north", "west") if gone else SITES)
        assert entry.unseen == ((OTHER,) if gone else ())
        if gone:
            assert entry.weights[OTHER] == rounds[hung - 2].weights[OTHER]
    # The other groups' weights went on moving.
    assert rounds[back - 2].weights[0] != rounds[hung - 2].weights[0]


def test_a_run_that_must_stop_has_everything_saved_and_goes_on_when_called_again(
    federation: LocalFederation, folder: Path, held: HeldRounds
) -> None:
    site_rules = SiteRules(SECONDS_PER_ANSWER, minimum_sites=len(SITES), round_timeout=1.0)
    plan = plan_named("stops", folder, site_rules)
    current, _ = checkpoint_paths(kept_run(federation, plan))
    outcome = federation.results(plan) / OUTCOME_FILE

    # Enough time for the faults: a held round would itself be one.
    held.slow_down()
    reason = stopped_run(
        federation, plan, ROUND_OF_THE_FAULT, lambda: fill_the_disk(federation, current, outcome)
    )
    assert "its disk is full (No space left on device)" in reason
    assert "it continues after its last saved round" in reason
    saved = saved_round(federation, plan, folder)
    assert ROUND_OF_THE_FAULT <= saved < ROUNDS

    still: list[psutil.Process] = []
    reason = stopped_run(
        federation,
        plan,
        saved + ROUND_OF_THE_FAULT,
        # One alone: a second one might answer this round before it stands still.
        lambda: hold(still, jobs_of(federation, "south")),
    )
    assert "2 of 3 sites answered, at least 3 are needed" in reason
    assert "south did not answer within 5 seconds" in reason
    assert "everything is saved" in reason
    assert f"round {saved_round(federation, plan, folder) + 1}: " in reason
    assert saved_round(federation, plan, folder) > saved

    held.speed_up()
    for job in still:
        job.resume()
    list(federation.run(plan))
    assert all(
        entry.sites.took_part == SITES for entry in finished_rounds(federation, plan, folder)
    )


def threads_of(jobs: list[psutil.Process]) -> Iterator[int]:
    """The numbers of threads of those jobs that are still there."""
    yield 0
    for job in jobs:
        with suppress(psutil.NoSuchProcess):
            yield job.num_threads()


def hold(still: list[psutil.Process], jobs: list[psutil.Process]) -> None:
    """Let these jobs stand still."""
    for job in jobs:
        job.suspend()
        still.append(job)


def fill_the_disk(federation: LocalFederation, checkpoint: Path, outcome: Path) -> None:
    """Let the next checkpoint, and how the run ended, be written to a device without room.

    The server holds still meanwhile: between two checkpoints nothing stands beside them.
    """
    # The job of the run before may not have ended yet.
    job = max(jobs_of(federation, SERVER), key=psutil.Process.create_time)
    own = f"{socket.gethostname()}-{job.pid}.partial"
    beside = [path.with_name(f"{path.name}.{own}") for path in (checkpoint, outcome)]
    while True:
        job.suspend()
        while job.status() != psutil.STATUS_STOPPED:
            time.sleep(0.001)
        if not any(path.exists() for path in beside):
            for path in beside:
                path.symlink_to("/dev/full")
            job.resume()
            return
        job.resume()
        time.sleep(0.003)
