"""Every place of NVIDIA FLARE that is replaced in our processes, and why.

The engine has no settings for these. Each replacement calls the engine's own function where it can;
the modules that are imported here hold the replacements. Another version of the engine than the one
that was read is refused, and so is one in which a replaced name does not exist.
"""

import logging
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import nvflare
from nvflare.app_common.job_launcher import process_launcher
from nvflare.fuel.f3.cellnet.connector_manager import ConnectorManager
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.communicator import driver_mgr
from nvflare.fuel.f3.drivers.tcp_driver import TcpDriver
from nvflare.fuel.f3.streaming import byte_streamer
from nvflare.fuel.f3.streaming.byte_receiver import RxTask
from nvflare.fuel.f3.streaming.byte_streamer import TxTask
from nvflare.fuel.hci.server.reg import ServerCommandRegister
from nvflare.fuel.utils.buffer_list import ConsumableBufferList
from nvflare.fuel.utils.fobs import fobs, lobs
from nvflare.private.fed.client.admin import FedAdminAgent
from nvflare.private.fed.utils.app_deployer import AppDeployer
from nvflare.utils.process_utils import ProcessAdapter

from fedminmax.core.errors import InputError
from fedminmax.network.flare import allow_list, commands, job_files, listener, streams, wire_types
from fedminmax.network.flare.process_tree import engine_command, lifeline

ENGINE_VERSION = "2.9."
JOB_MODULES = (
    "nvflare.private.fed.app.client.worker_process",
    "nvflare.private.fed.app.server.runner_process",
)
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
        wire_types.unpack_allowed,
        "a message could build objects of any type that the process has a builder for",
    ),
    Patch(
        lobs,
        "_get_one_section",
        wire_types.read_allowed_section,
        "a part of a message could become a file, or be fetched from an address",
    ),
)
COMMANDS_AND_JOBS = (
    Patch(
        FedAdminAgent,
        "register_processor",
        commands.register_allowed,
        "a site's main process would have a shell for the server",
    ),
    Patch(
        FedAdminAgent,
        "_dispatch_request",
        commands.dispatch_allowed,
        "commands come in messages of one kind, which the allow-list cannot tell apart",
    ),
    Patch(
        ServerCommandRegister,
        "_do_command",
        commands.do_allowed,
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
    driver_mgr.register(listener.ListeningDriver)


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
