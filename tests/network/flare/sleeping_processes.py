"""Real processes that do nothing, alone or with a child of their own."""

import subprocess
import sys

import psutil

SECONDS = 60.0
SLEEP = "import time; time.sleep(600)"
# Starts another process, in a session of its own, and tells its number.
PARENT = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {SLEEP!r}], start_new_session=True)
print(child.pid, flush=True)
child.wait()
"""


def started(code: str, *words: str) -> psutil.Popen:
    """A process that runs this code; what it prints can be read."""
    return psutil.Popen([sys.executable, "-c", code, *words], stdout=subprocess.PIPE)
