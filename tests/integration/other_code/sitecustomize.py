"""Lets one site run other code: Python imports this file at the start of every process.

It is found through PYTHONPATH, and a variable names the module. All processes but the jobs of the
site in question, which work in its kit's folder, stay as they are.
"""

import os
import sys
from importlib import import_module
from pathlib import Path

SITE = "south"
JOB = "nvflare.private.fed.app.client.worker_process"

if Path.cwd().name == SITE and JOB in sys.orig_argv:
    site = import_module("fedminmax.federation.site.site")
    import_module(os.environ["FEDMINMAX_TEST_CODE"]).install(site.Site)
