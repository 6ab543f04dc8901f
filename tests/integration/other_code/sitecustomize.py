"""Lets one site, or the server, run other code: Python imports this file in every process.

It is found through PYTHONPATH, and a variable names the module. All processes but the jobs of the
participant in question, which work in its kit's folder, stay as they are.
"""

import os
import sys
from importlib import import_module
from pathlib import Path

SITE, SERVER = "south", "localhost"
JOBS = {
    SITE: "nvflare.private.fed.app.client.worker_process",
    SERVER: "nvflare.private.fed.app.server.runner_process",
}
VARIABLES = {SITE: "FEDMINMAX_TEST_CODE", SERVER: "FEDMINMAX_TEST_SERVER_CODE"}

here = Path.cwd().name
if JOBS.get(here) in sys.orig_argv and VARIABLES[here] in os.environ:
    other = import_module(os.environ[VARIABLES[here]])
    if here == SITE:
        other.install(import_module("fedminmax.network.site.site").Site)
    else:
        other.install(import_module("fedminmax.network.flare.server"))
