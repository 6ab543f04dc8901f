"""A whole federation on this machine: kits, server and sites as processes, and jobs until the end.

A job that the engine lost, because a process died, is submitted again and goes on after the last
round that the server saved.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
from nvflare.fuel.flare_api.flare_api import Session

from fedminmax.core.errors import InputError
from fedminmax.federation.flare_job import write_job
from fedminmax.federation.flare_kits import COORDINATOR, ONE_PERSON, Kits, provision, settle_site
from fedminmax.federation.flare_processes import (
    OUTPUT_FILE,
    end,
    free_port,
    start_server,
    start_site,
)
from fedminmax.federation.flare_server import RUNS_FOLDER
from fedminmax.federation.flare_session import (
    connected,
    reason_of,
    status_of,
    stop,
    submit,
    wait_for_sites,
)
from fedminmax.federation.network_log import ROUNDS_FILE, NetworkRound, read_network_rounds
from fedminmax.federation.network_plan import NetworkPlan
from fedminmax.federation.network_run import read_outcome, run_folder
from fedminmax.federation.site_settings import SiteSettings

HOST = "localhost"
SECONDS_TO_START = 180.0
SECONDS_BETWEEN_LOOKS = 0.2
SECONDS_BETWEEN_STATUS = 2.0
MOST_SUBMISSIONS = 5
ENDED = "FINISHED"
REFUSED = "FINISHED:FAILED_TO_RUN"
SERVER = "server"


class LocalFederation:
    """Running processes, and the coordinator's connection to them.

    A server or site that died is started again, and a job that was lost with it is submitted again.
    """

    def __init__(self, folder: Path, kits: Kits) -> None:
        self.folder = folder
        self.kits = kits
        self.processes: dict[str, psutil.Popen] = {}

    def start(self) -> None:
        """Start whoever is not running."""
        for name in (SERVER, *self.kits.sites):
            process = self.processes.get(name)
            if process is None or process.poll() is not None:
                self.processes[name] = (
                    start_server(self.kits.server)
                    if name == SERVER
                    else start_site(self.kits.sites[name])
                )

    def results(self, plan: NetworkPlan) -> Path:
        """The folder in which the server keeps this plan's runs."""
        return self.kits.server / RUNS_FOLDER / plan.run

    def run(
        self, plan: NetworkPlan, say: Callable[[str], None] = lambda _: None
    ) -> Iterator[tuple[int, NetworkRound]]:
        """Run the plan; yield each finished round with the number of its run."""
        folder = self.results(plan)
        job = write_job(self.folder / "jobs", plan)
        seen = [0] * len(plan.runs)
        for _ in range(MOST_SUBMISSIONS):
            with self._connected() as session:
                number = submit(session, job)
                while not self._over(session, number, folder):
                    yield from _new_rounds(plan, folder, seen)
                if self._refused(session, number):
                    raise InputError(f"the job was refused: {reason_of(session, number)}")
            yield from _new_rounds(plan, folder, seen)
            outcome = read_outcome(folder)
            if outcome is not None:
                for reason in outcome.refused.values():
                    say(reason)
                if outcome.error is not None:
                    raise InputError(outcome.error)
                return
            say("the job was lost; it is submitted again and goes on after its last round")
            self.start()
        raise InputError(f"the job was lost {MOST_SUBMISSIONS} times; look into {folder}")

    def _refused(self, session: Session, number: str) -> bool:
        """Tell whether a living server would not run the job."""
        alive = self.processes[SERVER].poll() is None
        return alive and status_of(session, number) == REFUSED

    @contextmanager
    def _connected(self) -> Iterator[Session]:
        """Connect when the server and all sites are there."""
        with connected(
            self.kits.people[COORDINATOR], SECONDS_TO_START, self._check_alive
        ) as session:
            wait_for_sites(session, list(self.kits.sites), SECONDS_TO_START, self._check_alive)
            yield session

    def _check_alive(self) -> None:
        for name, process in self.processes.items():
            if process.poll() is not None:
                raise InputError(f"{name} ended at once: {_last_line(self.kits, name)}")

    def _over(self, session: Session, number: str, folder: Path) -> bool:
        """Look for a while; tell whether the job has ended, well or not."""
        until = time.monotonic() + SECONDS_BETWEEN_STATUS
        while time.monotonic() < until:
            if read_outcome(folder) is not None or self.processes[SERVER].poll() is not None:
                return True
            if any(process.poll() is not None for process in self.processes.values()):
                # A site that comes back cannot join a running job, only the next one.
                stop(session, number)
                return True
            time.sleep(SECONDS_BETWEEN_LOOKS)
        return status_of(session, number).startswith(ENDED)


@contextmanager
def local_federation(
    folder: Path, sites: Mapping[str, SiteSettings], people: Mapping[str, str] = ONE_PERSON
) -> Iterator[LocalFederation]:
    """Start a server and these sites; end all their processes when the block is left."""
    kits = provision(folder, HOST, free_port(), list(sites), people)
    for site, settings in sites.items():
        settle_site(kits.sites[site], settings)
    federation = LocalFederation(folder, kits)
    try:
        federation.start()
        yield federation
    finally:
        end(federation.processes.values())


def _new_rounds(
    plan: NetworkPlan, folder: Path, seen: list[int]
) -> Iterator[tuple[int, NetworkRound]]:
    for number in range(len(plan.runs)):
        rounds = read_network_rounds(run_folder(folder, plan, number) / ROUNDS_FILE)
        for entry in rounds:
            if entry.round > seen[number]:
                seen[number] = entry.round
                yield number, entry


def _last_line(kits: Kits, name: str) -> str:
    kit = kits.server if name == SERVER else kits.sites[name]
    lines = (kit / OUTPUT_FILE).read_text(encoding="utf-8", errors="replace").splitlines()
    return lines[-1] if lines else "without a word"
