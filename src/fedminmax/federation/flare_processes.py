"""Server and sites of NVIDIA FLARE as processes of this machine.

Each participant starts processes of its own for every job; ``process_family`` finds them.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil

from fedminmax.federation.flare_kits import PROJECT, settle_server, site_name

SERVER_MODULE = "fedminmax.federation.flare_server_process"
SITE_MODULE = "nvflare.private.fed.app.client.client_train"
OUTPUT_FILE = "output.txt"
# So long a job that has ended waits for the last word of a site that is gone; else 15 minutes.
SECONDS_FOR_A_GOODBYE = "15"


def start_server(kit: Path) -> psutil.Popen:
    """Start the server of this kit."""
    settle_server(kit)
    words = [SERVER_MODULE, "-m", str(kit), "-s", "fed_server.json"]
    return _start(kit, words, [], {"NVFLARE_CLIENT_OUTCOME_WAIT_TIMEOUT": SECONDS_FOR_A_GOODBYE})


def start_site(kit: Path) -> psutil.Popen:
    """Start the site of this kit."""
    words = [SITE_MODULE, "-m", str(kit), "-s", "fed_client.json"]
    return _start(kit, words, [f"uid={site_name(kit)}"], {})


def free_port() -> int:
    """Return a port of the loopback address that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _start(
    kit: Path, words: list[str], settings: list[str], variables: Mapping[str, str]
) -> psutil.Popen:
    kit.joinpath("transfer").mkdir(exist_ok=True)
    command = [sys.executable, "-u", "-m", *words, "--set", "secure_train=true"]
    command += [*settings, f"org={PROJECT}", "config_folder=config"]
    # Several participants share this machine's cores.
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | dict(variables)
    with (kit / OUTPUT_FILE).open("ab") as output:
        return psutil.Popen(
            command,
            cwd=kit,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # Ctrl-C is for the command that started them: it ends them in its own order.
            start_new_session=True,
        )
