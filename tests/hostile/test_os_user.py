"""Real processes: another user of the machine, without a key and without the right to read a table.

A site's processes speak to each other over a port of the machine, which every user can connect to.
The user here speaks the engine's protocol, calls itself the server, and asks for the table.
"""

import encodings.idna  # noqa: F401 - the other user may not read Python's files, either
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgpack
import psutil
import pytest
from nvflare.apis.utils.decomposers import flare_decomposers
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.sfm.constants import HandshakeKeys, Types
from nvflare.fuel.f3.sfm.prefix import PREFIX_LEN, Prefix
from nvflare.fuel.utils import fobs
from nvflare.private.admin_defs import Message
from nvflare.private.fed.utils.fed_utils import private_decomposers

from fedminmax.network.flare.kits import write_site_settings
from fedminmax.network.flare.local import (
    OUTPUT_FILE,
    LocalFederation,
    has_registered,
    local_federation,
)
from fedminmax.network.site.settings import SiteSettings
from tests.hostile.engine_federation import table_in_kit, wait_for
from tests.network.network_problem import SITES, write_tables

pytestmark = [
    pytest.mark.slow,
    # The other user is a copy of this process.
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning"),
]
NOBODY = 65534
SECONDS_TO_LISTEN = 3.0
CONNECTED = b"connected\n"
JOB = "0f0e0d0c-0b0a-4908-8706-050403020100"


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFederation]:
    folder = tmp_path_factory.mktemp("federation")
    write_tables(folder)
    tables = {site: SiteSettings(folder / f"{site}.csv") for site in SITES}
    with local_federation(folder / "kits", tables) as running:
        kit = running.kits.sites["north"]
        shutil.copyfile(folder / "north.csv", table_in_kit(kit))
        write_site_settings(kit, SiteSettings(table_in_kit(kit)))
        for own in running.kits.sites.values():
            wait_for(lambda own=own: has_registered(own, 0))  # type: ignore[misc]
        yield running


def frame(kind: int, headers: dict[str, object] | None, payload: bytes) -> bytes:
    """A piece of the engine's protocol."""
    packed = b"" if headers is None else msgpack.packb(headers)
    prefix = Prefix(PREFIX_LEN + len(packed) + len(payload), len(packed), kind, app_id=1)
    content = bytearray(PREFIX_LEN)
    prefix.to_buffer(content, 0)
    return bytes(content) + packed + payload


def question(name: str, to: str) -> tuple[bytes, bytes]:
    """Say hello under a name, and have a command carried out."""
    flare_decomposers.register()
    private_decomposers.register()
    hello = frame(Types.HELLO, None, msgpack.packb({HandshakeKeys.ENDPOINT_NAME: name}))
    headers: dict[str, object] = {
        MessageHeaderKey.ORIGIN: name,
        MessageHeaderKey.DESTINATION: to,
        MessageHeaderKey.FROM_CELL: name,
        MessageHeaderKey.TO_CELL: to,
        MessageHeaderKey.CHANNEL: "admin",
        MessageHeaderKey.TOPIC: "admin",
        MessageHeaderKey.MSG_TYPE: "req",
        MessageHeaderKey.REQ_ID: "1",
        MessageHeaderKey.REPLY_EXPECTED: True,
        MessageHeaderKey.PAYLOAD_ENCODING: "fobs",
        MessageHeaderKey.ROUTE: [[name, 0.0]],
    }
    command = fobs.dumps(Message("sys.shell", "head -n 3 north.csv"))
    return hello, frame(Types.DATA, headers, bytes(command))


def as_nobody(port: int, parts: tuple[bytes, ...], forbidden: Path) -> bytes:
    """Send this to a port of this machine, and return what comes.

    Only root can become another user for that; others do without their key.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
                with suppress(PermissionError):
                    os.write(writing, forbidden.read_bytes())
            with socket.create_connection(("127.0.0.1", port), SECONDS_TO_LISTEN) as plain:
                os.write(writing, CONNECTED)
                with suppress(OSError):
                    for part in (*parts, b""):
                        plain.sendall(part)
                        os.write(writing, plain.recv(2**16))
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        got = pipe.read()
    os.waitpid(child, 0)
    assert got.startswith(CONNECTED)
    return got.removeprefix(CONNECTED)


def listening_ports(process: psutil.Process) -> list[int]:
    family = (process, *process.children(recursive=True))
    return [
        entry.laddr.port
        for member in family
        for entry in member.net_connections("inet")
        if entry.status == psutil.CONN_LISTEN
    ]


@pytest.mark.parametrize("name", ["server", f"north.{JOB}", f"server.{JOB}", "south"])
def test_another_user_gets_nothing_out_of_a_site(federation: LocalFederation, name: str) -> None:
    table = table_in_kit(federation.kits.sites["north"])
    ports = listening_ports(federation.processes["north"])
    # The port for the site's own jobs; from outside nobody connects to a site.
    assert len(ports) == 1
    got = as_nobody(ports[0], question(name, "north"), table)
    assert table.read_bytes().splitlines()[1] not in got
    # A TLS alert at most: its first byte is 21.
    assert got[:1] in (b"", b"\x15")
    log = (federation.kits.sites["north"] / OUTPUT_FILE).read_text()
    assert "connection of ('127.0.0.1', " in log
    assert "refused: " in log


def test_another_user_gets_nothing_out_of_the_server(federation: LocalFederation) -> None:
    ports = listening_ports(federation.processes["server"])
    key = federation.kits.server / "startup" / "server.key"
    assert len(ports) == 2
    for port in ports:
        for name in (f"server.{JOB}", "north"):
            got = as_nobody(port, question(name, "north"), key)
            assert got[:1] in (b"", b"\x15")
