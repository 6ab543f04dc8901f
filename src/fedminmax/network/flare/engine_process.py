"""A process of NVIDIA FLARE, with its doors closed before it opens the first one.

All processes that we start are started through this module: a server's and a site's main process,
and the processes that these start for every job.
"""

import os
import runpy
import sys

from fedminmax.core.errors import InputError
from fedminmax.network.flare.engine import JOB_MODULES, SERVER_MODULE, SITE_MODULE
from fedminmax.network.flare.patches import patch_process
from fedminmax.network.flare.process_tree import end_with_parent


def main() -> None:
    """Run one of the engine's modules."""
    module, *arguments = sys.argv[1:]
    if module not in (SITE_MODULE, SERVER_MODULE, *JOB_MODULES):
        sys.exit(f"{module} is not started from here")
    end_with_parent()
    # What is written is for the owner alone: logs, settings, what a run leaves.
    os.umask(0o077)
    try:
        patch_process()
    except InputError as error:
        sys.exit(f"fedminmax: error: {error}")
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
