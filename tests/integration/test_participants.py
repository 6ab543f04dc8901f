"""`fedminmax federation start` and `fedminmax site start` as an administrator uses them."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from fedminmax.cli.main import main
from fedminmax.federation.flare_processes import free_port
from fedminmax.federation.flare_session import connected, wait_for_sites
from tests.federation.network_problem import write_tables

# The engine leaves its sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning")
SECONDS = 120.0


def command(*words: str | Path) -> psutil.Popen:
    return psutil.Popen(
        [sys.executable, "-m", "fedminmax.cli.main", *map(str, words)],
        stderr=subprocess.DEVNULL,
    )


def nothing_to_check() -> None:
    """The processes live for as long as the test."""


def test_a_server_and_a_site_find_each_other_and_end_with_ctrl_c(tmp_path: Path) -> None:
    file = tmp_path / "federation.toml"
    file.write_text(
        f'sites = ["north"]\n[server]\nport = {free_port()}\n[people]\n'
        '"ann@lab.org" = "coordinator"\n'
    )
    kits = tmp_path / "kits"
    assert main(["federation", "create", str(file), "--out", str(kits)]) == 0
    config, site = write_tables(tmp_path), kits / "sites" / "north"
    words = ["--kit", str(site), "--data", str(tmp_path / "north.csv"), "--config", str(config)]
    assert main(["site", "check", *words]) == 0
    commands = [
        command("federation", "start", "--kit", kits / "server"),
        command("site", "start", "--kit", site),
    ]
    families = list(commands)
    try:
        with connected(kits / "people" / "ann@lab.org", SECONDS, nothing_to_check) as session:
            wait_for_sites(session, ["north"], SECONDS, nothing_to_check)
        families += [child for one in commands for child in one.children(recursive=True)]
        assert len(families) >= 4
    finally:
        for one in commands:
            one.send_signal(signal.SIGINT)
    assert [one.wait(timeout=60) for one in commands] == [130, 130]
    assert not any(member.is_running() for member in families[2:])
