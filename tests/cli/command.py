"""Run the installed command as a user would, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

# The runs are tiny: threads inside an operation would only wait for one another.
ONE_THREAD = os.environ | {"OMP_NUM_THREADS": "1"}

SMALL = [
    *["--quick", "--rows", "200", "--rounds", "60", "--local-rounds", "2"],
    *["--holders", "4", "--epochs", "2", "--batch-size", "20"],
]


def fedminmax(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run `fedminmax` with these words and return what it printed."""
    return subprocess.run(
        command(*words), cwd=cwd, env=ONE_THREAD, capture_output=True, text=True, check=False
    )


def command(*words: str) -> list[str]:
    """The command's words for a process."""
    return [sys.executable, "-m", "fedminmax.cli.main", *words]


def complaint(*words: str, cwd: Path) -> str:
    """Run a command that must be refused: exit code 2, one line, no traceback."""
    done = fedminmax(*words, cwd=cwd)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr
