"""Real processes: who is kept out of a federation, and what does not travel."""

import socket
import ssl
import stat
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from nvflare.fuel.flare_api.api_spec import AuthorizationError

from fedminmax.federation.flare_job import write_job
from fedminmax.federation.flare_kits import COORDINATOR, provision
from fedminmax.federation.flare_local import ENDED
from fedminmax.federation.flare_session import connected, reason_of, status_of, submit
from tests.federation.network_problem import SITES
from tests.integration.trained_federation import MEMBER, TrainedFederation

# The engine leaves its sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning")


def test_the_server_listens_on_loopback_alone(trained: TrainedFederation) -> None:
    server = trained.federation.processes["server"]
    addresses = {
        entry.laddr.ip
        for process in (server, *server.children(recursive=True))
        for entry in process.net_connections("inet")
        if entry.status == psutil.CONN_LISTEN
    }
    assert addresses == {"127.0.0.1"}


def test_a_stranger_without_certificate_gets_nothing(trained: TrainedFederation) -> None:
    with socket.create_connection(("127.0.0.1", trained.port), timeout=30) as plain:
        plain.sendall(b"hello")
        try:
            answer = plain.recv(100)
        except ConnectionResetError:
            answer = b""
    # A TLS alert at most: its first byte is 21.
    assert answer[:1] in (b"", b"\x15")


def speaks_tls(trained: TrainedFederation, kit: Path) -> bool:
    """Whether the server goes on talking to the owner of this kit's certificate."""
    context = ssl.create_default_context(
        cafile=trained.federation.kits.server / "startup" / "rootCA.pem"
    )
    context.load_cert_chain(kit / "startup" / "client.crt", kit / "startup" / "client.key")
    context.check_hostname = False
    with socket.create_connection(("127.0.0.1", trained.port), timeout=5) as plain:
        try:
            with context.wrap_socket(plain) as secure:
                # The server's verdict on our certificate comes with the first bytes, if any.
                return bool(secure.recv(1))
        except TimeoutError:
            return True
        except (ssl.SSLError, ConnectionError):
            return False


def test_a_certificate_of_another_federation_is_refused(
    trained: TrainedFederation, tmp_path: Path
) -> None:
    stranger = provision(tmp_path, "localhost", trained.port, ["north"])
    assert speaks_tls(trained, trained.federation.kits.sites["north"])
    assert not speaks_tls(trained, stranger.sites["north"])


def nothing_to_check() -> None:
    """The federation runs for as long as the test."""


def test_a_member_may_not_submit(trained: TrainedFederation, tmp_path: Path) -> None:
    job = write_job(tmp_path, trained.plan)
    kit = trained.federation.kits.people[MEMBER]
    with (
        connected(kit, 60.0, nothing_to_check) as session,
        pytest.raises(AuthorizationError, match="not authorized"),
    ):
        submit(session, job)


def test_a_job_with_code_is_refused(trained: TrainedFederation, tmp_path: Path) -> None:
    job = write_job(tmp_path, replace(trained.plan, run="with-code"))
    code = job / "app" / "custom" / "surprise.py"
    code.parent.mkdir()
    code.write_text("raise SystemExit")
    kit = trained.federation.kits.people[COORDINATOR]
    with connected(kit, 60.0, nothing_to_check) as session:
        number = submit(session, job)
        while not status_of(session, number).startswith(ENDED):
            time.sleep(0.5)
        assert status_of(session, number) == "FINISHED:FAILED_TO_RUN"
        assert "BYOC not permitted" in reason_of(session, number)
    assert not trained.federation.results(replace(trained.plan, run="with-code")).exists()


def test_keys_are_for_their_owner_alone(trained: TrainedFederation) -> None:
    kits = trained.federation.kits
    keys = [key for kit in (kits.server, *kits.sites.values()) for key in kit.rglob("*.key")]
    assert len(keys) == 1 + len(SITES)
    assert {stat.S_IMODE(key.stat().st_mode) for key in keys} == {0o600}


def test_no_path_and_no_code_travels(trained: TrainedFederation) -> None:
    jobs = [path for path in (trained.federation.folder / "jobs").rglob("*") if path.is_file()]
    # The engine adds its signature and the coordinator's certificate.
    assert {path.suffix for path in jobs} == {".json", ".crt"}
    assert not any(str(trained.folder) in path.read_text() for path in jobs)
