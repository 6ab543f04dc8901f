"""Hostile code for some processes of a federation: Python imports this file in every process.

It is found through PYTHONPATH. In the processes of the server and of one site it waits for messages
to send, whatever a test wants sent; all others stay as they are.
"""

import os
import sys
from importlib import import_module
from pathlib import Path

HOSTILE = ("localhost", "south")
MODULES = {
    "nvflare.private.fed.app.client.client_train": "main",
    "nvflare.private.fed.app.client.worker_process": "job",
    "nvflare.private.fed.app.server.server_train": "main",
    "nvflare.private.fed.app.server.runner_process": "job",
}

here = Path.cwd().name
found = [kind for module, kind in MODULES.items() if module in sys.orig_argv]
if found and here in HOSTILE and "FEDMINMAX_TEST_PUPPETS" in os.environ:
    puppet = import_module("engine_puppet")
    puppet.start(Path(os.environ["FEDMINMAX_TEST_PUPPETS"]) / f"{here}-{found[0]}")
    if found[0] == "job" and here == "south":
        held = import_module("held_rounds")
        held.install(import_module("fedminmax.network.site.site").Site)
if found and "FEDMINMAX_TEST_PUPPETS" in os.environ:
    place = "SERVER" if here == "localhost" else "SITE"
    place += "_JOB" if found[0] == "job" else ""
    import_module("engine_records").start(Path(os.environ["FEDMINMAX_TEST_PUPPETS"]), place)
