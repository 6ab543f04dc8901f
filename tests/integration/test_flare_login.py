"""Real processes: a server that hangs while the coordinator logs in, and one that comes back."""

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from fedminmax.network.flare.kits import COORDINATOR
from fedminmax.network.flare.local import SERVER, LocalFederation
from fedminmax.network.flare.session import SECONDS_PER_LOGIN, connected, wait_for_sites
from tests.complaints import complaint_of
from tests.network.network_problem import SITES

# The engine leaves its sockets to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning"),
    pytest.mark.slow,
]
PATIENCE = 120.0


def log_in(federation: LocalFederation, seconds: float = PATIENCE) -> list[str]:
    """Wait for all sites as a coordinator does; return those that did not come."""
    with connected(federation.kits.people[COORDINATOR], seconds, federation.check) as session:
        return wait_for_sites(session, SITES, PATIENCE, federation.check)


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_text("no key")])
def test_a_kit_without_its_key_is_told_of(
    federation: LocalFederation, tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    kit = tmp_path / "ann"
    shutil.copytree(federation.kits.people[COORDINATOR], kit)
    damage(kit / "startup" / "client.key")

    def log_in_with_it() -> None:
        with connected(kit, PATIENCE, federation.check):
            pass

    assert complaint_of(log_in_with_it) == (
        f"{kit} has no certificate and key that fit together; ask for the kit again"
    )


def test_a_server_that_hangs_is_told_of(federation: LocalFederation) -> None:
    log_in(federation)
    federation.processes[SERVER].suspend()
    try:
        complaint = complaint_of(lambda: log_in(federation, seconds=2.0))
    finally:
        federation.processes[SERVER].resume()
    assert complaint == "the server does not answer within 2 seconds; is it running?"


def test_a_connection_that_comes_while_others_are_closed_keeps_nobody_waiting(
    federation: LocalFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine overlooks such a connection, and then waits for its end, which never comes."""
    log_in(federation)
    server = federation.processes[SERVER]
    held = threading.Event()

    def hold_once(*_: object) -> None:
        if not held.is_set():
            server.suspend()
            held.set()

    # It answered, and hangs before the engine connects: its system takes the connection, and hands
    # are shaken when it is let go.
    monkeypatch.setattr("fedminmax.network.flare.session._probe_tls", hold_once)
    missing: list[list[str]] = []
    attempt = threading.Thread(target=lambda: missing.append(log_in(federation)), daemon=True)
    attempt.start()
    assert held.wait(PATIENCE)
    attempt.join(SECONDS_PER_LOGIN + 4.0)
    assert attempt.is_alive()
    server.resume()
    attempt.join(PATIENCE)
    assert not attempt.is_alive()
    assert missing == [[]]
