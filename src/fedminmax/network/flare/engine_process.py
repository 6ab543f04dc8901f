"""A process of NVIDIA FLARE, with its doors closed before it opens the first one.

All processes that we start are started through this module: a server's and a site's main process,
and the processes that these start for every job. A job's process would be started by the engine
without it, and is started here in its place.
"""

import logging
import os
import runpy
import subprocess
import sys
from collections.abc import Mapping, Sequence

from nvflare.app_common.job_launcher import process_launcher
from nvflare.utils.process_utils import ProcessAdapter

from fedminmax.core.errors import InputError
from fedminmax.network.flare.allow_list import install_allow_list
from fedminmax.network.flare.commands import install_command_lists
from fedminmax.network.flare.job_files import install_job_check
from fedminmax.network.flare.lifeline import end_with_parent, lifeline
from fedminmax.network.flare.listener import install_listener
from fedminmax.network.flare.streams import reduce_stream_overhead
from fedminmax.network.flare.wire_types import install_wire_types

THIS = "fedminmax.network.flare.engine_process"
SITE_MODULE = "nvflare.private.fed.app.client.client_train"
SERVER_MODULE = "nvflare.private.fed.app.server.server_train"
JOB_MODULES = (
    "nvflare.private.fed.app.client.worker_process",
    "nvflare.private.fed.app.server.runner_process",
)
LOG = logging.getLogger(__name__)


def engine_command(module: str, arguments: Sequence[str]) -> list[str]:
    """Return the command that runs a module of the engine with its doors closed."""
    return [sys.executable, "-u", "-m", THIS, module, *arguments]


def close_doors() -> None:
    """Close all that is not needed in this process."""
    install_allow_list()
    install_wire_types()
    install_command_lists()
    install_job_check()
    install_listener()
    process_launcher.spawn_process = _start_job


def _start_job(command: Sequence[str], environment: Mapping[str, str]) -> ProcessAdapter:
    """Start a job's process as the engine would, but through this module, and to end with us."""
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


def main() -> None:
    """Run one of the engine's modules."""
    module, *arguments = sys.argv[1:]
    if module not in (SITE_MODULE, SERVER_MODULE, *JOB_MODULES):
        sys.exit(f"{module} is not started from here")
    end_with_parent()
    # What is written is for the owner alone: logs, settings, what a run leaves.
    os.umask(0o077)
    try:
        close_doors()
    except InputError as error:
        sys.exit(f"fedminmax: error: {error}")
    reduce_stream_overhead()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
