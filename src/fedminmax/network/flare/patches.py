"""Every place of NVIDIA FLARE that is replaced in our processes, and why.

The engine has no settings for these. Each replacement calls the engine's own function where it can;
it is here, or in a module that is imported here. Another version of the engine than the one that
was read is refused, and so is one in which a replaced name does not exist.

- Listener: the engine performs one TLS handshake after the other, without a timeout, and a single
  silent connection would lock all others out. Here every handshake has its own thread and a
  timeout, and the number of pending handshakes is limited.
- Commands come inside messages of one kind, so the allow-list of messages cannot tell them apart.
  Those that ``rules`` names are carried out, and no others. At a site the server sends them; at the
  server, people do, and there the engine's own rules about roles hold as well.
- Types: the engine's format (FOBS, over msgpack) names a class with each object, and how to build
  it. It builds what it has a builder for, and that grows with every module that is imported: file
  names that are read when a reply repeats them, arrays that are fetched from an address in the
  message, files that are written to a folder for all users. Our own messages are bytes in a
  dictionary, and only the few types that a run needs are built.
"""

import logging
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import nvflare

from fedminmax.core.errors import InputError
from fedminmax.network.flare import (
    allow_list,
    job_files,
    rules,
    streams,
)
from fedminmax.network.flare.allow_list import log_refusal
from fedminmax.network.flare.engine import (
    JOB_MODULES,
    AppDeployer,
    ConnectorManager,
    ConnProps,
    ConsumableBufferList,
    CoreCell,
    FedAdminAgent,
    MessageHeaderKey,
    ProcessAdapter,
    RequestHeader,
    RxTask,
    ServerCommandRegister,
    TcpDriver,
    TcpStreamServer,
    TxTask,
    byte_streamer,
    driver_mgr,
    error_reply,
    fobs,
    lobs,
    new_cell_message,
    process_launcher,
)
from fedminmax.network.flare.process_tree import engine_command, lifeline

HANDSHAKE_TIMEOUT = 10.0
# Sites and people never need more at once: the oldest is dropped. The engine cannot serve a
# connection whose file descriptor is above 1,023.
MAX_HANDSHAKES = 300
log = logging.getLogger(__name__)


class Listener(TcpStreamServer):  # type: ignore[misc] # the engine has no types
    """Accepts connections at once; each shakes hands in its own thread, before the engine sees it.

    Args:
        driver: the engine's driver, which is notified of new connections.
        connector: the address, and the certificates.
    """

    # Connections that the system holds until they are accepted.
    request_queue_size = 128

    def __init__(self, driver: Any, connector: Any) -> None:
        super().__init__(driver, connector)
        if self.ssl_context:
            self.socket.do_handshake_on_connect = False
        self._handshakes: dict[socket.socket, None] = {}
        self._lock = threading.Lock()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection, in its own thread."""
        if self.ssl_context:
            self._handshake(request)
        super().finish_request(request, client_address)

    def _handshake(self, connection: Any) -> None:
        with self._lock:
            self._handshakes[connection] = None
            surplus = list(self._handshakes)[:-MAX_HANDSHAKES]
        for oldest in surplus:
            self._drop(oldest)
        try:
            connection.settimeout(HANDSHAKE_TIMEOUT)
            connection.do_handshake()
            connection.settimeout(None)
        finally:
            with self._lock:
                self._handshakes.pop(connection, None)

    def _drop(self, connection: Any) -> None:
        with self._lock:
            self._handshakes.pop(connection, None)
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            # Its own thread has ended it.
            return

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Log why a connection ended: any client can cause this, so it is not our error."""
        log.info("connection of %s refused: %s", client_address, sys.exc_info()[1])


class ListeningDriver(TcpDriver):  # type: ignore[misc]
    """The engine's TCP driver with our listener."""

    def listen(self, connector: Any) -> None:
        """Accept connections until the end."""
        self.connector = connector
        self.server = Listener(self, connector)
        self.server.serve_forever()


REFUSED = "this command is refused"
_engine_register = FedAdminAgent.register_processor
_engine_dispatch = FedAdminAgent._dispatch_request
_engine_do = ServerCommandRegister._do_command


def register_allowed(agent: Any, processor: Any) -> None:
    """Give a site's main process no processor of a command that is closed: there is no shell."""
    if set(processor.get_topics()) <= {*rules.SITE_COMMANDS, *rules.SITE_COMMANDS_OF_JOBS}:
        _engine_register(agent, processor)


def dispatch_allowed(agent: Any, request: Any) -> Any:
    """Do what the engine does with a command at a site, if it is one of the named."""
    command = request.payload
    origin = request.get_header(MessageHeaderKey.ORIGIN)
    topic = getattr(command, "topic", None)
    problem = command_problem(origin, topic, getattr(command, "headers", None))
    if problem is None:
        return _engine_dispatch(agent, request)
    log_refusal(
        agent.cell.get_fqcn(), str(origin), origin, f"command {ascii(topic)[:100]}", problem
    )
    return new_cell_message({}, error_reply(REFUSED))


def command_problem(origin: object, topic: object, headers: object) -> str | None:
    """Return why a command is refused; None if it is not."""
    of_job = origin != rules.ROOT
    if topic not in (rules.SITE_COMMANDS_OF_JOBS if of_job else rules.SITE_COMMANDS):
        return "not allowed"
    number = headers.get(RequestHeader.JOB_ID) if isinstance(headers, dict) else None
    if number is None:
        return "it has no job" if of_job else None
    if not isinstance(number, str) or rules.JOB_NUMBER.fullmatch(number) is None:
        # The engine makes folders, and words of a command, of these.
        return "its job has no number"
    if of_job and str(origin).partition(".")[2] != number:
        return "it is about another job"
    return None


def do_allowed(register: Any, connection: Any, command: str) -> None:
    """Do what the engine does with a person's command, if it is one of the named."""
    name = command.split(maxsplit=1)[0] if command.strip() else ""
    entries = register.get_command_entries(name)
    if entries and all(entry.name in rules.SERVER_COMMANDS for entry in entries):
        _engine_do(register, connection, command)
        return
    headers = connection.get_prop(ConnProps.CMD_HEADERS) or {}
    person = headers.get(MessageHeaderKey.ORIGIN)
    log_refusal(rules.ROOT, str(person), person, f"command {ascii(name)[:100]}", "not allowed")
    connection.append_error(REFUSED)


# By the names that travel.
TYPES = frozenset(
    {
        "tuple",
        "nvflare.apis.client.Client",
        "nvflare.apis.fl_context.FLContext",
        "nvflare.apis.job_def.JobMetaKey",
        "nvflare.apis.shareable.Shareable",
        "nvflare.fuel.utils.fobs.datum.DatumRef",
        "nvflare.private.admin_defs.Message",
    }
)
SECTIONS = frozenset({lobs.MARKER_MAIN, lobs.MARKER_DATUM_TEXT, lobs.MARKER_DATUM_BLOB})
_engine_unpack = fobs.Packer.unpack
_engine_section = lobs._get_one_section


def unpack_allowed(packer: Any, value: Any) -> Any:
    """Do what the engine's own does, for a type of the list."""
    if type(value) is dict and fobs.FOBS_TYPE in value and value[fobs.FOBS_TYPE] not in TYPES:
        raise ValueError(f"type {ascii(value[fobs.FOBS_TYPE])[:100]} is refused")
    return _engine_unpack(packer, value)


def read_allowed_section(stream: Any, expect_datum: bool) -> Any:  # noqa: FBT001 - the engine's
    """Do what the engine's own does; a part becomes no file, and nothing that is fetched."""
    header, *rest = _engine_section(stream, expect_datum)
    if header and (header.marker not in SECTIONS or header.dot > 0):
        raise ValueError(f"a part of kind {header.marker}, {header.dot} is refused")
    return header, *rest


ENGINE_VERSION = "2.9."
LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Patch:
    """One name of the engine, what takes its place, and why."""

    owner: object
    name: str
    replacement: object
    reason: str


MESSAGES = (
    Patch(
        CoreCell,
        "process_message",
        allow_list.receive_allowed,
        "any participant could send any message to any process, a shell command as well",
    ),
    Patch(
        CoreCell,
        "_add_adhoc_connector",
        allow_list.connect_nowhere,
        "a message could name an address to connect to",
    ),
    Patch(
        CoreCell,
        "start",
        allow_list.start_connected,
        "a job that is not connected yet would send by way of the server",
    ),
    Patch(
        ConnectorManager,
        "__init__",
        allow_list.close_internal_port,
        "every user of the machine could connect to the port for a participant's own processes",
    ),
    Patch(
        fobs.Packer,
        "unpack",
        unpack_allowed,
        "a message could build objects of any type that the process has a builder for",
    ),
    Patch(
        lobs,
        "_get_one_section",
        read_allowed_section,
        "a part of a message could become a file, or be fetched from an address",
    ),
)
COMMANDS_AND_JOBS = (
    Patch(
        FedAdminAgent,
        "register_processor",
        register_allowed,
        "a site's main process would have a shell for the server",
    ),
    Patch(
        FedAdminAgent,
        "_dispatch_request",
        dispatch_allowed,
        "commands come in messages of one kind, which the allow-list cannot tell apart",
    ),
    Patch(
        ServerCommandRegister,
        "_do_command",
        do_allowed,
        "people's commands include a shell at the server and at the sites",
    ),
    Patch(
        AppDeployer,
        "deploy",
        job_files.deploy_ours,
        "a job could bring code, and be signed by anybody of the federation",
    ),
)
SPEED = (
    Patch(
        RxTask,
        "_schedule_remove_task",
        streams.forget_later,
        "each message would start a thread to be forgotten a minute later",
    ),
    Patch(
        RxTask,
        "_send_ack",
        streams.confirm_if_needed,
        "messages would be confirmed to senders who do not wait for it",
    ),
    Patch(
        TxTask,
        "__init__",
        streams.begin_with_fitting_buffer,
        "each message would have a buffer of a megabyte",
    ),
    Patch(
        ConsumableBufferList,
        "__repr__",
        streams.size_alone,
        "each message would be written out for a log that nobody keeps",
    ),
    Patch(
        byte_streamer,
        "reliable_retry_scheduler",
        streams.RETRIES,
        "each reply would wake a thread five times to see whether it must be sent again",
    ),
)


def check_engine_version() -> None:
    """Refuse an engine whose inside was not read."""
    if not nvflare.__version__.startswith(ENGINE_VERSION):
        raise InputError(
            f"nvflare {nvflare.__version__} is installed, and its doors are not known; install "
            f"nvflare {ENGINE_VERSION}*: nothing was started"
        )


def patch_session() -> None:
    """Patch the process of a person who talks to the server."""
    apply((*MESSAGES, *SPEED))


def patch_process() -> None:
    """Patch a process of the server or of a site; must come before the engine's first cell."""
    start = Patch(
        process_launcher,
        "spawn_process",
        _start_job,
        "a job's process would start without these patches, and outlive its parent",
    )
    apply((*MESSAGES, *COMMANDS_AND_JOBS, start, *SPEED))
    # One silent connection would lock all others out of the engine's own listener.
    driver_mgr.class_cache.add(TcpDriver.__name__)
    driver_mgr.register(ListeningDriver)


def apply(patches: Iterable[Patch]) -> None:
    """Put the replacements into the engine of this process."""
    check_engine_version()
    for patch in patches:
        owner = getattr(patch.owner, "__name__", patch.owner)
        if not hasattr(patch.owner, patch.name):
            raise InputError(
                f"nvflare {nvflare.__version__} has no {owner}.{patch.name}, which has to be "
                f"replaced because {patch.reason}; install another nvflare {ENGINE_VERSION}*"
            )
        setattr(patch.owner, patch.name, patch.replacement)


def _start_job(command: Sequence[str], environment: Mapping[str, str]) -> ProcessAdapter:
    """Start a job's process as the engine would, but patched as well, and to end with us."""
    _, dash_m, module, *arguments = command
    if dash_m != "-m" or module not in JOB_MODULES:
        raise RuntimeError(f"the engine starts {module}, which is not known")
    process = subprocess.Popen(  # noqa: S603 - the engine's own modules
        engine_command(module, arguments),
        env=dict(environment),
        stdin=lifeline(),
        start_new_session=True,
    )
    LOG.info("job in process %d", process.pid)
    return ProcessAdapter(process=process)
