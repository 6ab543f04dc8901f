"""Server and sites of NVIDIA FLARE as processes of this machine.

Each participant starts processes of its own for every job; ``process_tree`` finds them.
"""

import os
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

import psutil

from fedminmax.network.flare.engine import SERVER_MODULE, SITE_MODULE
from fedminmax.network.flare.kits import PROJECT, make_private, site_name, write_server_settings
from fedminmax.network.flare.patches import check_engine_version
from fedminmax.network.flare.process_tree import engine_command, lifeline

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
