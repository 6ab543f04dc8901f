"""A deployment as its people use it: kits, a server, three sites, and a coordinator who comes back.

Every participant is started by the command that its administrator has; the only thing that they
share is the loopback interface. Nobody says a word about masks, so sums are masked.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pytest

import fedminmax
from fedminmax.cli.main import main
from fedminmax.network.flare.local import free_port
from fedminmax.network.flare.process_tree import end
from fedminmax.network.flare.session import FederationStatus, federation_status
from tests.cli.command import command, fedminmax_process
from tests.cli.command import fedminmax as fedminmax_here
from tests.integration.other_code_at_south import HeldRounds
from tests.network.masked_problem import listed_config
from tests.network.network_problem import SITES

# The engine leaves its sockets to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning"),
    # Before any process starts.
    pytest.mark.usefixtures("held"),
    pytest.mark.slow,
]
SECONDS = 240.0
ROUNDS = 10
# The next round is held until the fault has come.
ROUND_TO_LEAVE_AT = 3
ROUND_TO_STOP_AT = 6


@dataclass(frozen=True)
class Deployment:
    """Where everything is, the processes of those who take part, and of coordinators."""

    folder: Path
    participants: list[psutil.Popen]
    coordinators: list[psutil.Popen]

    def coordinate(self, out: str, *more: str, stderr: int = subprocess.DEVNULL) -> psutil.Popen:
        words = ["federation", "run", "fedminmax.toml", "--kit", str(self.kit), "--out", out, *more]
        # These tests may run under nohup, which commands inherit; a user's terminal is not so.
        before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
        words += ["--minimum-sites", "3"]
        self.coordinators.append(start(*words, cwd=self.folder, stderr=stderr))
        signal.signal(signal.SIGHUP, before)
        return self.coordinators[-1]

    @property
    def kit(self) -> Path:
        return self.folder / "kits" / "people" / "ann@lab.org"

    def status(self) -> FederationStatus:
        return federation_status(self.kit, SECONDS)

    def wait_until(self, seen: Callable[[FederationStatus], bool]) -> FederationStatus:
        deadline = time.monotonic() + SECONDS
        status = self.status()
        while time.monotonic() < deadline:
            if seen(status):
                return status
            time.sleep(0.5)
            status = self.status()
        raise AssertionError(f"not seen within {SECONDS:g} seconds; last: {status}")


def start(*words: str | Path, cwd: Path, stderr: int = subprocess.DEVNULL) -> psutil.Popen:
    # The other code of a site is named there, too.
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return psutil.Popen(
        command(*map(str, words)), cwd=cwd, env=environment, stderr=stderr, text=True
    )


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("deployment")
    listed_config(folder)
    config = folder / "fedminmax.toml"
    config.write_text(config.read_text().replace("rounds = 3", f"rounds = {ROUNDS}"))
    sites = json.dumps(list(SITES))
    (folder / "federation.toml").write_text(
        f"sites = {sites}\n[server]\nport = {free_port()}\n[people]\n"
        '"ann@lab.org" = "coordinator"\n'
    )
    kits = folder / "kits"
    words = [str(folder / "federation.toml"), "--config", str(config), "--out", str(kits)]
    assert main(["federation", "create", *words]) == 0
    for site in SITES:
        words = ["--kit", str(kits / "sites" / site), "--data", str(folder / f"{site}.csv")]
        assert main(["site", "check", *words]) == 0
    participants = [start("federation", "start", "--kit", kits / "server", cwd=folder)]
    participants += [
        start("site", "start", "--kit", kits / "sites" / site, cwd=folder) for site in SITES
    ]
    coordinators: list[psutil.Popen] = []
    try:
        yield Deployment(folder, participants, coordinators)
    finally:
        end(coordinators)
        families = [child for one in participants for child in one.children(recursive=True)]
        for one in participants:
            one.send_signal(signal.SIGINT)
        assert [one.wait(timeout=60) for one in participants] == [130] * len(participants)
        assert len(families) >= len(participants)
        _, alive = psutil.wait_procs(families, timeout=20)
        # Whose parent died first may wait for its end to be noted.
        assert [one for one in alive if one.status() != psutil.STATUS_ZOMBIE] == []


def is_running_after(number: int) -> Callable[[FederationStatus], bool]:
    def seen(status: FederationStatus) -> bool:
        return any(run.status == "RUNNING" and (run.round or 0) > number for run in status.runs)

    return seen


def test_a_closed_terminal_and_a_stop_do_not_change_the_model(
    deployment: Deployment, held: HeldRounds, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = deployment.folder
    deployment.wait_until(lambda status: set(status.heard) == set(SITES))
    held.hold(ROUND_TO_LEAVE_AT + 1, ROUND_TO_STOP_AT + 1)
    coordinator = deployment.coordinate("run")
    deployment.wait_until(is_running_after(ROUND_TO_LEAVE_AT - 1))

    # What a terminal sends to its commands when it is closed.
    coordinator.send_signal(signal.SIGHUP)
    assert coordinator.wait(timeout=30) == -signal.SIGHUP
    assert deployment.status().runs[0].round == ROUND_TO_LEAVE_AT
    held.let_go(ROUND_TO_LEAVE_AT + 1)
    deployment.wait_until(is_running_after(ROUND_TO_STOP_AT - 1))

    assert main(["federation", "stop", str(folder / "run")]) == 0
    assert "every finished round is saved" in capsys.readouterr().err
    deployment.wait_until(lambda status: status.runs[0].status == "FINISHED:ABORTED")
    assert not (folder / "run" / "results.json").exists()
    held.let_go(ROUND_TO_STOP_AT + 1)

    resumed = fedminmax_process("federation", "resume", "run", cwd=folder)
    assert resumed.returncode == 0, resumed.stderr
    assert "per 1,000, on test records" in " ".join(resumed.stdout.split())
    assert fedminmax_here("train", "fedminmax.toml", "--out", "alone", cwd=folder).stderr
    np.testing.assert_allclose(
        fedminmax.load_model(folder / "run").predict_proba(folder / "north.csv"),
        fedminmax.load_model(folder / "alone").predict_proba(folder / "north.csv"),
        atol=1e-5,
    )
    lines = (folder / "run" / "rounds.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in lines] == list(range(1, ROUNDS + 1))
    assert all(json.loads(line)["sites"]["took_part"] == list(SITES) for line in lines)
    assert json.loads((folder / "run" / "results.json").read_text())["secure_aggregation"] == 3


def test_a_finished_run_is_shown_again_and_cannot_be_stopped(deployment: Deployment) -> None:
    again = fedminmax_here("federation", "resume", "run", cwd=deployment.folder)
    assert again.returncode == 0, again.stderr
    assert "per 1,000, on test records" in " ".join(again.stdout.split())
    stopped = fedminmax_here("federation", "stop", "run", cwd=deployment.folder)
    assert "had ended already" in stopped.stderr
    shown = fedminmax_here(
        "federation", "status", "--kit", str(deployment.kit), cwd=deployment.folder
    )
    assert "FINISHED:COMPLETED" in shown.stdout
    assert shown.stdout.count("yes, seen") == len(SITES)


def test_a_site_that_was_killed_takes_part_again(deployment: Deployment, held: HeldRounds) -> None:
    """Its own command starts it again, and the job is submitted again with it."""
    folder = deployment.folder
    held.hold(ROUND_TO_LEAVE_AT + 1)
    coordinator = deployment.coordinate("killed")
    deployment.wait_until(is_running_after(ROUND_TO_LEAVE_AT - 1))
    for member in deployment.participants[-1].children(recursive=True):
        member.kill()
    held.let_go(ROUND_TO_LEAVE_AT + 1)
    assert coordinator.wait(timeout=2 * SECONDS) == 0
    np.testing.assert_allclose(
        fedminmax.load_model(folder / "killed").predict_proba(folder / "north.csv"),
        fedminmax.load_model(folder / "run").predict_proba(folder / "north.csv"),
        atol=1e-9,
    )


def test_a_site_that_is_gone_for_good_ends_the_run_with_everything_saved(
    deployment: Deployment, held: HeldRounds
) -> None:
    """Sites may take the default ten minutes, but this one is gone, and the run does not wait."""
    held.hold(ROUND_TO_LEAVE_AT + 1)
    coordinator = deployment.coordinate("gone", "--round-timeout", "5s", stderr=subprocess.PIPE)
    deployment.wait_until(is_running_after(ROUND_TO_LEAVE_AT - 1))
    end([deployment.participants.pop()])
    held.let_go(ROUND_TO_LEAVE_AT + 1)
    _, words = coordinator.communicate(timeout=SECONDS)
    assert coordinator.returncode == 2
    line = words.splitlines()[-1]
    assert f"round {ROUND_TO_LEAVE_AT + 1}: no total over at least 3 sites" in line
    assert "west is no longer connected" in line or "'west' has gone" in line
    assert "stopped after 5 seconds, everything is saved" in line
    assert "Traceback" not in words
