"""Real processes: who is kept out of a federation, and what does not travel."""

import json
import select
import shutil
import socket
import ssl
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from nvflare.fuel.flare_api.api_spec import AuthorizationError

from fedminmax.config.planned_runs import PlannedRun
from fedminmax.network.flare import patches as listening
from fedminmax.network.flare.coordinator import CONNECTION_LOST
from fedminmax.network.flare.job_files import write_job
from fedminmax.network.flare.kits import COORDINATOR, provision, write_site_settings
from fedminmax.network.flare.local import free_port
from fedminmax.network.flare.presence import connection_problem
from fedminmax.network.flare.session import (
    ENDED,
    SECONDS_PER_LOGIN,
    connected,
    reason_of,
    sites_present,
    status_of,
    submit,
)
from fedminmax.network.server.log import LiveRound, Notice
from fedminmax.network.site.settings import SiteSettings
from tests.integration.tls_handshake import speaks_tls
from tests.integration.trained_federation import MEMBER, TrainedFederation
from tests.network.network_problem import SITES

# The engine leaves its sockets to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning"),
    pytest.mark.slow,
]
CODE = "custom/surprise.py"
REFUSED_CODE = f"this job is refused: it has files that no job of fedminmax has ('{CODE}')"
# So many that say nothing, and as many that speak another language.
STRANGERS = 200
# A login has one try of five seconds, which is the product's limit; a busy machine has four.
SECONDS_OF_A_LOGIN = 5.0
PATIENCE = 4 * SECONDS_OF_A_LOGIN


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


def test_a_certificate_of_another_federation_is_refused(
    trained: TrainedFederation, tmp_path: Path
) -> None:
    kits = trained.federation.kits
    stranger = provision(tmp_path / "a", host="localhost", port=trained.port, sites=["north"])
    unreachable = provision(tmp_path / "b", host="localhost", port=free_port(), sites=["north"])
    assert speaks_tls(trained.port, kits.sites["north"], kits.server)
    assert not speaks_tls(trained.port, stranger.sites["north"], kits.server)
    assert connection_problem(kits.sites["north"]) is None
    assert "cannot be reached" in (connection_problem(unreachable.sites["north"]) or "")
    assert "refuses this kit's certificate" in (connection_problem(stranger.sites["north"]) or "")


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


def reason_of_refusal(trained: TrainedFederation, job: Path) -> str:
    """Submit a job as the coordinator and return why it did not run."""
    kit = trained.federation.kits.people[COORDINATOR]
    with connected(kit, 60.0, nothing_to_check) as session:
        number = submit(session, job)
        while not status_of(session, number).startswith(ENDED):
            time.sleep(0.5)
        assert status_of(session, number) == "FINISHED:FAILED_TO_RUN"
        return reason_of(session, number)


def add_code(app: Path) -> None:
    code = app / CODE
    code.parent.mkdir()
    code.write_text("raise SystemExit")


def test_a_job_with_code_is_refused(trained: TrainedFederation, tmp_path: Path) -> None:
    plan = replace(trained.plan, run="with-code")
    job = write_job(tmp_path, plan)
    add_code(job / "app")
    assert f"server: {REFUSED_CODE}" in reason_of_refusal(trained, job)
    assert not trained.federation.results(plan).exists()


def test_code_that_the_server_would_pass_on_is_refused_by_every_site(
    trained: TrainedFederation, tmp_path: Path
) -> None:
    plan = replace(trained.plan, run="code-for-sites")
    job = write_job(tmp_path, plan)
    shutil.copytree(job / "app", job / "app_of_sites")
    add_code(job / "app_of_sites")
    meta = job / "meta.json"
    parts = {"app": ["server"], "app_of_sites": list(SITES)}
    meta.write_text(json.dumps(json.loads(meta.read_text()) | {"deploy_map": parts}))
    reason = reason_of_refusal(trained, job)
    assert "server: OK" in reason
    for site in SITES:
        assert f"{site}: NVFLARE_ERROR: {REFUSED_CODE}" in reason
    assert not trained.federation.results(plan).exists()


def test_a_site_takes_no_part_if_asked_for_a_column_that_it_did_not_agree_to(
    trained: TrainedFederation,
) -> None:
    kit, table = trained.federation.kits.sites["south"], trained.folder / "south.csv"
    plan = replace(trained.plan, run="columns", runs=(PlannedRun("fedminmax", {}, 2),))
    write_site_settings(kit, SiteSettings(table, columns=("age", "sex", "ill")))
    try:
        events = list(trained.federation.run(plan))
    finally:
        write_site_settings(kit, SiteSettings(table))
    # On a busy machine a connection may be lost on the way, which loses nothing else.
    notices = [event for event in events if isinstance(event, Notice)]
    said = [event.words for event in notices if event != CONNECTION_LOST]
    assert said == ["south: column 'ward' is not among those that this site agreed to"]
    took_part = [event.round.sites.took_part for event in events if isinstance(event, LiveRound)]
    assert took_part == [("north", "west")] * 2


def test_keys_are_for_their_owner_alone(trained: TrainedFederation) -> None:
    kits = trained.federation.kits
    keys = [key for kit in (kits.server, *kits.sites.values()) for key in kit.rglob("*.key")]
    assert len(keys) == 1 + len(SITES)
    assert {stat.S_IMODE(key.stat().st_mode) for key in keys} == {0o600}


def test_no_path_and_no_code_travels(trained: TrainedFederation) -> None:
    job = trained.federation.folder / "coordinator" / trained.plan.run / "job"
    jobs = [path for path in job.rglob("*") if path.is_file()]
    # The engine adds its signature and the coordinator's certificate.
    assert {path.suffix for path in jobs} == {".json", ".crt"}
    assert not any(str(trained.folder) in path.read_text() for path in jobs)


@contextmanager
def strangers_at(port: int) -> Iterator[None]:
    """Hold connections of which half say nothing, and half something that is no handshake."""
    with ExitStack() as connections:
        for number in range(2 * STRANGERS):
            stranger = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
            connections.enter_context(stranger)
            if number % 2:
                stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        yield


def test_connections_that_say_nothing_or_nonsense_keep_nobody_out(
    trained: TrainedFederation,
) -> None:
    """Anybody can connect; without a limit, the first one of these would be waited for."""
    assert SECONDS_PER_LOGIN == SECONDS_OF_A_LOGIN
    kit = trained.federation.kits.people[COORDINATOR]
    with (
        strangers_at(trained.port),
        connected(kit, PATIENCE, trained.federation.check) as session,
    ):
        assert set(sites_present(session)) == set(SITES)


@contextmanager
def listener_of(trained: TrainedFederation) -> Iterator[int]:
    """Listen as the server of the federation does, on another port, in this process."""
    startup, port = trained.federation.kits.server / "startup", free_port()
    names = {"ca_cert": "rootCA.pem", "server_cert": "server.crt", "server_key": "server.key"}
    params = {"host": "127.0.0.1", "port": port, "secure": True}
    params |= {name: str(startup / file) for name, file in names.items()}
    listener = listening.Listener(None, SimpleNamespace(params=params))
    listener.daemon_threads = True
    # Threads of strangers that never end must not be waited for, either.
    listener.block_on_close = False
    thread = threading.Thread(target=listener.serve_forever, daemon=True)
    thread.start()
    try:
        yield port
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()


def shakes_hands(trained: TrainedFederation, port: int) -> bool:
    """Whether a site of the federation comes to talk to whoever listens there."""
    kits = trained.federation.kits
    context = ssl.create_default_context(cafile=kits.server / "startup" / "rootCA.pem")
    own = kits.sites["north"] / "startup"
    context.load_cert_chain(own / "client.crt", own / "client.key")
    context.check_hostname = False
    with (
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as plain,
        context.wrap_socket(plain) as secure,
    ):
        return bool(secure.getpeercert())


def is_closed(connection: socket.socket) -> bool:
    """Whether the other side ends this connection while we wait."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_no_handshake_waits_for_a_stranger(
    trained: TrainedFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here a silent stranger's never ends: whoever waited for one would wait for ever."""
    monkeypatch.setattr(listening, "HANDSHAKE_TIMEOUT", None)
    with listener_of(trained) as port, strangers_at(port):
        assert shakes_hands(trained, port)


def test_of_too_many_handshakes_at_once_the_oldest_has_to_go(
    trained: TrainedFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "HANDSHAKE_TIMEOUT", None)
    monkeypatch.setattr(listening, "MAX_HANDSHAKES", 5)
    with listener_of(trained) as port, ExitStack() as connections:
        address = ("127.0.0.1", port)
        waiting = [
            connections.enter_context(socket.create_connection(address, timeout=PATIENCE))
            for _ in range(10)
        ]
        while len(waiting) > 5:
            ended, _, _ = select.select(waiting, [], [], PATIENCE)
            assert ended
            assert all(map(is_closed, ended))
            waiting = [stranger for stranger in waiting if stranger not in ended]
        assert shakes_hands(trained, port)


def test_a_handshake_has_a_limit_of_time(
    trained: TrainedFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "HANDSHAKE_TIMEOUT", 0.1)
    with (
        listener_of(trained) as port,
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as stranger,
    ):
        assert is_closed(stranger)
        assert shakes_hands(trained, port)
