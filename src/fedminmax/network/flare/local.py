"""Server and sites of NVIDIA FLARE as processes of this machine, and a whole federation of them.

Each participant starts processes of its own for every job; ``process_tree`` finds them.
"""

import os
import socket
import subprocess
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil

from fedminmax.core.errors import InputError
from fedminmax.network.flare.coordinator import RESULTS, Coordinator
from fedminmax.network.flare.engine import SERVER_MODULE, SITE_MODULE
from fedminmax.network.flare.kits import (
    COORDINATOR,
    ONE_PERSON,
    PROJECT,
    Kits,
    make_private,
    provision,
    site_name,
    write_server_settings,
    write_site_settings,
)
from fedminmax.network.flare.patches import check_engine_version
from fedminmax.network.flare.process_tree import end, engine_command, lifeline, with_watchdog
from fedminmax.network.flare.server import RUNS_FOLDER
from fedminmax.network.server.log import Event
from fedminmax.network.site.journal import KEPT_FOLDER
from fedminmax.network.site.settings import SiteSettings
from fedminmax.network.wire.plan import NetworkPlan

OUTPUT_FILE = "output.txt"
# What the engine writes when the server has accepted the site.
REGISTERED = b"Successfully registered client"
# Messages of some megabytes come and go in every round. The system's C library would give their
# memory back each time, and have the system clear it for the next one.
MALLOC_SETTINGS = {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**26)}
# How long a finished job waits for the last message of a site that is gone; default 15 minutes.
EXIT_WAIT_SECONDS = "15"


def start_server(kit: Path) -> psutil.Popen:
    """Start the server of this kit."""
    write_server_settings(kit)
    arguments = ["-m", str(kit), "-s", "fed_server.json"]
    return _start(
        kit,
        SERVER_MODULE,
        arguments,
        [],
        {"NVFLARE_CLIENT_OUTCOME_WAIT_TIMEOUT": EXIT_WAIT_SECONDS},
    )


def start_site(kit: Path) -> psutil.Popen:
    """Start the site of this kit."""
    arguments = ["-m", str(kit), "-s", "fed_client.json"]
    return _start(kit, SITE_MODULE, arguments, [f"uid={site_name(kit)}"], {})


def output_size(kit: Path) -> int:
    """Return how many bytes the processes of this kit have written so far."""
    path = kit / OUTPUT_FILE
    return path.stat().st_size if path.exists() else 0


def has_registered(kit: Path, since: int) -> bool:
    """Return whether the site of this kit was accepted by the server after this many bytes."""
    if output_size(kit) <= since:
        return False
    with (kit / OUTPUT_FILE).open("rb") as output:
        output.seek(since)
        return REGISTERED in output.read()


def free_port() -> int:
    """Return a free port of the loopback address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _start(
    kit: Path,
    module: str,
    arguments: list[str],
    settings: list[str],
    variables: Mapping[str, str],
) -> psutil.Popen:
    check_engine_version()
    kit.joinpath("transfer").mkdir(exist_ok=True)
    make_private(kit)
    command = engine_command(module, [*arguments, "--set", "secure_train=true"])
    command += [*settings, f"org={PROJECT}", "config_folder=config"]
    # Several participants share this machine's cores.
    environment = MALLOC_SETTINGS | os.environ | {"OMP_NUM_THREADS": "1"} | dict(variables)
    with (kit / OUTPUT_FILE).open("ab") as output:
        return psutil.Popen(
            command,
            cwd=kit,
            env=environment,
            stdin=lifeline(),
            stdout=output,
            stderr=subprocess.STDOUT,
            # Ctrl-C is for the command that started them, which ends them in the right order.
            start_new_session=True,
        )


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
