"""Lets into a process of NVIDIA FLARE the messages that ``rules`` names, and no others.

Why the engine has to be patched: whoever holds a certificate of the federation can send a message
of any kind to any process of any participant, and each process answers whatever it has a handler
for. A site's main process runs shell commands, changes what it logs to anything that can be
imported, and connects to any address, if a message says so; whether the sender may ask for that
is checked only if the message itself asks for the check. There is no setting against it.

Each message is looked at when it has just arrived: its headers are read (plain msgpack), and
nothing of its content is. What is known then:

- over which connection it came. Every connection is mutual TLS, also between a participant's own
  processes (``close_internal_port``), and the engine has compared the name that the other side
  claims with the name in its certificate. Here both are compared again.
- from whom the message says that it is, and for whom. A participant can write there what it likes,
  so only those who really pass on others' messages are believed: the server, and a site's main
  process for its own jobs. At the server, a site speaks for itself alone.

So a site cannot reach another site at all, and the server's job cannot reach a site's main process.
The server itself can claim anything about others, and still send a site only what the rules name.
"""

import logging
import math
import threading
import time
from typing import Any

from nvflare.apis.fl_constant import ConnectionSecurity

from fedminmax.network.flare.engine import (
    STREAM_ACK_TOPIC,
    STREAM_CHANNEL,
    STREAM_DATA_TOPIC,
    STREAM_ERROR_TOPIC,
    CellChannel,
    ConnectorManager,
    CoreCell,
    DriverParams,
    FOBSContextKey,
    MessageHeaderKey,
    MessageType,
    StreamHeaderKey,
)
from fedminmax.network.flare.rules import CellName, Place, is_allowed, may_meet, parse_cell_name

LOG = logging.getLogger("fedminmax.refused")
# Of one kind of message, one line in so many seconds; of all, so many at once.
SECONDS_BETWEEN_LINES = 10.0
MAX_LINES = 500
MAX_NAME_LENGTH = 100
# Between participants the engine would connect to whatever address a message names, or decrypt
# what it says is encrypted, for which it asks the sender back.
CLOSED_HEADERS = (MessageHeaderKey.CONN_URL, MessageHeaderKey.ENCRYPTED)
SECONDS_TO_CONNECT = 60.0
POLL_SECONDS = 0.01
_engine_receive = CoreCell.process_message
_engine_start = CoreCell.start
_engine_connectors = ConnectorManager.__init__


def is_installed() -> bool:
    """Return whether this process has its doors closed."""
    return CoreCell.process_message is receive_allowed


def receive_allowed(cell: Any, endpoint: Any, connection: Any, app_id: int, message: Any) -> None:
    """Do what the engine does with a message that arrived, if a rule lets it through."""
    try:
        is_own = _is_from_here(cell, connection)
        refused = None if is_own else refusal(cell, endpoint, connection, message)
    except Exception as error:  # noqa: BLE001 - an error must not let a message through
        # Whatever cannot be judged is refused.
        refused = f"cannot be read ({type(error).__name__})"
    if refused is None:
        _engine_receive(cell, endpoint, connection, app_id, message)
    elif refused:
        headers = message.headers or {}
        log_refusal(
            cell.my_info.fqcn,
            _described(endpoint, connection),
            headers.get(MessageHeaderKey.ORIGIN),
            _kind_of(headers),
            refused,
        )


def _is_from_here(cell: Any, connection: Any) -> bool:
    """Return whether a message has not left this process."""
    return connection is None or connection is cell.communicator.conn_manager.null_conn


def refusal(cell: Any, endpoint: Any, connection: Any, message: Any) -> str | None:
    """Return why a message is refused, "" if it is merely too late; None lets it through."""
    headers = message.headers
    origin = parse_cell_name(headers.get(MessageHeaderKey.ORIGIN))
    destination = parse_cell_name(headers.get(MessageHeaderKey.DESTINATION))
    own = parse_cell_name(cell.my_info.fqcn)
    peer = parse_cell_name(endpoint.name)
    if peer is None or not _is_certified(cell, endpoint.name, peer, connection):
        return "its connection is another's, by its certificate"
    if origin is None or destination is None or own is None:
        return "its sender or its destination is no participant"
    if not _speaks_for(peer, origin, own):
        return "it speaks for somebody else"
    if any(headers.get(name) for name in CLOSED_HEADERS):
        return "it names an address, or a key"
    if headers.get(MessageHeaderKey.MSG_TYPE) != MessageType.REQ:
        return _refusal_of_reply(cell, headers, origin, destination)
    channel, topic = headers.get(MessageHeaderKey.CHANNEL), headers.get(MessageHeaderKey.TOPIC)
    if channel == STREAM_CHANNEL:
        return _refusal_of_stream(cell, headers, topic, origin, destination)
    return None if is_allowed(destination, origin, channel, topic) else "not allowed"


def _is_certified(cell: Any, name: str, peer: CellName, connection: Any) -> bool:
    """Return whether the other end of a connection has the certificate of whom it claims to be."""
    certified = connection.get_conn_properties().get(DriverParams.PEER_CN.value)
    if peer.place is Place.PERSON:
        # A session has a number for a name; people, unlike sites, have an address in theirs.
        return bool(certified) and "@" in certified
    return bool(certified) and bool(cell.identity_resolver.resolve(name) == certified)


def _speaks_for(peer: CellName, origin: CellName, own: CellName) -> bool:
    """Return whether messages of this origin come over a connection with this peer."""
    if peer == origin:
        return True
    if own.place is Place.SERVER:
        return peer.place is Place.SITE and origin.owner == peer.owner
    if peer.owner == own.owner:
        # The main process passes on what is for its job.
        return own.job is not None and peer.job is None
    return peer.place is Place.SERVER and origin.owner != own.owner


def _refusal_of_reply(
    cell: Any, headers: Any, origin: CellName, destination: CellName
) -> str | None:
    """Judge a reply: its request must be waiting. The engine would decode it before it looks."""
    if not may_meet(origin, destination):
        return "not allowed"
    if headers.get(MessageHeaderKey.DESTINATION) != cell.my_info.fqcn:
        return None
    asked = headers.get(MessageHeaderKey.REQ_ID)
    waiting = [asked] if isinstance(asked, str) else list(asked or [])
    return None if any(number in cell.waiters for number in waiting) else ""


def _refusal_of_stream(
    cell: Any, headers: Any, topic: object, origin: CellName, destination: CellName
) -> str | None:
    """Judge a piece of a longer message by what all of it is."""
    if topic in (STREAM_ACK_TOPIC, STREAM_ERROR_TOPIC):
        return None if may_meet(origin, destination) else "not allowed"
    channel, inner = headers.get(StreamHeaderKey.CHANNEL), headers.get(StreamHeaderKey.TOPIC)
    if topic != STREAM_DATA_TOPIC:
        return "not allowed"
    if channel != CellChannel.RETURN_ONLY:
        return None if is_allowed(destination, origin, channel, inner) else "not allowed"
    asked_channel, _, asked_topic = str(inner).partition(":")
    if not is_allowed(origin, destination, asked_channel, asked_topic):
        return "not allowed"
    waiting = _waiting_requests(cell).get(headers.get(StreamHeaderKey.STREAM_REQ_ID))
    is_other = waiting is not None and waiting.target != headers.get(MessageHeaderKey.ORIGIN)
    return "it replies to what another was asked" if is_other else None


def _waiting_requests(cell: Any) -> dict[str, Any]:
    whole = cell.fobs_ctx.get(FOBSContextKey.CELL)
    return whole.requests_dict if whole is not None else {}


def connect_nowhere(cell: Any, to_cell: str, url: str) -> None:
    """Do not connect to an address that a message names: all connections are in the kit."""


def start_connected(cell: Any) -> None:
    """Start a cell; a job's is ready when it is connected with its main process.

    The engine would send what comes before that by way of the server, where others could.
    """
    _engine_start(cell)
    until = time.monotonic() + SECONDS_TO_CONNECT
    while cell.my_info.gen > 1 and not cell.is_backbone_ready() and time.monotonic() < until:
        time.sleep(POLL_SECONDS)


def close_internal_port(manager: Any, *arguments: Any, **named: Any) -> None:
    """Let a participant's own processes prove to each other who they are, with the kit's key.

    The engine's port for them is plain TCP on the loopback address: every user of the machine
    could connect, and call itself the server.
    """
    _engine_connectors(manager, *arguments, **named)
    manager.adhoc_allowed = False
    manager.int_scheme = "tcp"
    manager.int_resources = {
        DriverParams.HOST.value: "localhost",
        DriverParams.CONNECTION_SECURITY.value: ConnectionSecurity.MTLS,
    }


class RefusalLog:
    """One line for each kind of refused message, and not for each message.

    Who makes up ever new kinds gets a line in a second at most, when those for a start are used up.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[str, ...], float] = {}
        self._lines = float(MAX_LINES)
        self._counted = time.monotonic()
        self._lock = threading.Lock()

    def is_due(self, *kind: str) -> bool:
        """Return whether a line is to be written now."""
        now = time.monotonic()
        with self._lock:
            self._lines = min(MAX_LINES, self._lines + now - self._counted)
            self._counted = now
            if self._lines < 1 or now - self._last.get(kind, -math.inf) < SECONDS_BETWEEN_LINES:
                return False
            self._lines -= 1
            if len(self._last) >= MAX_LINES:
                self._last.clear()
            self._last[kind] = now
        return True


_LINES = RefusalLog()


def log_refusal(at: str, peer: str, origin: object, kind: str, why: str) -> None:
    """Write who was refused what, in one line, unless that was just written."""
    said = _shown(origin)
    if _LINES.is_due(at, peer, said, kind, why):
        words = (at, kind, said, peer, why)
        LOG.warning("refused at %s: %s from %s over the connection of %s: %s", *words)


def _kind_of(headers: Any) -> str:
    names = [MessageHeaderKey.CHANNEL, MessageHeaderKey.TOPIC]
    names += [StreamHeaderKey.CHANNEL, StreamHeaderKey.TOPIC]
    return "/".join(_shown(headers.get(name)) for name in names if headers.get(name))


def _described(endpoint: Any, connection: Any) -> str:
    certified = connection.get_conn_properties().get(DriverParams.PEER_CN.value)
    return f"{_shown(endpoint.name)} (certificate {_shown(certified)})"


def _shown(name: object) -> str:
    """Return a name as it can be written to a log: in one line, and not too long."""
    return ascii(name)[:MAX_NAME_LENGTH].strip("'\"")
