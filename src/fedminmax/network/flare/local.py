"""A whole federation on this machine: server and sites as processes, and runs between them."""

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil

from fedminmax.core.errors import InputError
from fedminmax.network.flare.coordinator import RESULTS, Coordinator
from fedminmax.network.flare.kits import (
    COORDINATOR,
    ONE_PERSON,
    Kits,
    provision,
    write_site_settings,
)
from fedminmax.network.flare.process_tree import end
from fedminmax.network.flare.processes import OUTPUT_FILE, free_port, start_server, start_site
from fedminmax.network.flare.server import RUNS_FOLDER
from fedminmax.network.flare.watchdog import with_watchdog
from fedminmax.network.server.log import Event
from fedminmax.network.site.journal import KEPT_FOLDER
from fedminmax.network.site.settings import SiteSettings
from fedminmax.network.wire.plan import NetworkPlan

HOST = "localhost"
SECONDS_TO_START = 180.0
SERVER = "server"


class LocalFederation:
    """Running processes, and the coordinator's connection to them.

    A server or site that died is started again, and a job that was lost with it is submitted again.
    """

    def __init__(self, folder: Path, kits: Kits) -> None:
        self.folder = folder
        self.kits = kits
        self.processes: dict[str, psutil.Popen] = {}

    def restart_dead(self) -> None:
        """Start the processes that are not running."""
        for name in (SERVER, *self.kits.sites):
            process = self.processes.get(name)
            if process is None or process.poll() is not None:
                self.processes[name] = (
                    start_server(self.kits.server)
                    if name == SERVER
                    else start_site(self.kits.sites[name])
                )

    def lost(self) -> bool:
        """Return whether a process has died."""
        return any(process.poll() is not None for process in self.processes.values())

    def check(self) -> None:
        """Refuse to wait for a process that has ended."""
        for name, process in self.processes.items():
            if process.poll() is not None:
                raise InputError(f"{name} ended at once: {_last_line(self.kits, name)}")

    def results(self, plan: NetworkPlan) -> Path:
        """The folder in which the server keeps this plan's runs."""
        return self.kits.server / RUNS_FOLDER / plan.run

    def fetched(self, plan: NetworkPlan) -> Path:
        """The folder to which the coordinator fetched what a finished run left."""
        return self._place(plan) / RESULTS

    def run(self, plan: NetworkPlan) -> Generator[Event]:
        """Run the plan; yield each finished round, and other news."""
        coordinator = Coordinator(self.kits.people[COORDINATOR], self, SECONDS_TO_START)
        return coordinator.run(plan, self._place(plan))

    def _place(self, plan: NetworkPlan) -> Path:
        return self.folder / "coordinator" / plan.run


@contextmanager
def local_federation(
    folder: Path,
    sites: Mapping[str, SiteSettings],
    people: Mapping[str, str] = ONE_PERSON,
    memory: Path | None = None,
) -> Iterator[LocalFederation]:
    """Start a server and these sites; end all their processes when the block is left.

    What server and sites need to resume later is stored in ``memory``, or in their kits.
    """
    with with_watchdog(folder):
        kits = provision(folder, host=HOST, port=free_port(), sites=list(sites), people=people)
        for site, settings in sites.items():
            write_site_settings(kits.sites[site], settings)
        if memory is not None:
            _link_storage(memory.absolute(), kits)
        federation = LocalFederation(folder, kits)
        try:
            federation.restart_dead()
            yield federation
        finally:
            end(federation.processes.values())


def _link_storage(memory: Path, kits: Kits) -> None:
    """Let all participants store their files in one folder that outlives their kits."""
    rooms = {kits.server / RUNS_FOLDER: memory / SERVER}
    rooms |= {kit / KEPT_FOLDER: memory / "sites" / site for site, kit in kits.sites.items()}
    for inside, outside in rooms.items():
        outside.mkdir(parents=True, exist_ok=True)
        inside.symlink_to(outside, target_is_directory=True)


def _last_line(kits: Kits, name: str) -> str:
    kit = kits.server if name == SERVER else kits.sites[name]
    lines = (kit / OUTPUT_FILE).read_text(encoding="utf-8", errors="replace").splitlines()
    return lines[-1] if lines else "no output"
