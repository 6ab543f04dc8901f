"""Run the command as a user would and keep what it printed: here, or in a process of its own."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest

from fedminmax.cli.main import main

# The runs are tiny: threads inside an operation would only wait for one another.
ONE_THREAD = os.environ | {"OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Done:
    """How a command ended, and what it printed."""

    returncode: int
    stdout: str
    stderr: str


def fedminmax(*words: str, cwd: Path) -> Done:
    """Run `fedminmax` with these words, without seconds of imports for each call."""
    return done_by(main, *words, cwd=cwd)


def done_by(program: Callable[[list[str]], int], *words: str, cwd: Path) -> Done:
    """Run a program's main function with these words."""
    out, err = StringIO(), StringIO()
    with chdir(cwd), redirect_stdout(out), redirect_stderr(err):
        try:
            code = call_main(program, *words)
        except SystemExit as exit_:
            code = int(exit_.code or 0)
    return Done(code, out.getvalue(), err.getvalue())


def fedminmax_process(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run `fedminmax` in a process of its own."""
    return subprocess.run(
        command(*words), cwd=cwd, env=ONE_THREAD, capture_output=True, text=True, check=False
    )


def command(*words: str) -> list[str]:
    """The command's words for a process."""
    return [sys.executable, "-m", "fedminmax.cli.main", *words]


def complaint(*words: str, cwd: Path) -> str:
    """Run a command that must be refused: exit code 2, one line, no traceback."""
    return one_line(fedminmax(*words, cwd=cwd))


def one_line(done: Done) -> str:
    """Return the one line of a program that refused what it was given."""
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def run_here(*words: object) -> None:
    """Run a command that must succeed."""
    assert call(*words) == 0


def call(*words: object) -> int:
    """Run a command and return its exit code; the test's own signals stay as they were."""
    return call_main(main, *words)


def call_main(program: Callable[[list[str]], int], *words: object) -> int:
    """Run a program's main function in the same way."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        return program([str(word) for word in words])
    finally:
        signal.signal(signal.SIGTERM, before)


def complaint_here(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """Run a command that must be refused, and return its one line of complaint."""
    capsys.readouterr()
    assert call(*words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    complaint = said.err.splitlines()[-1]
    assert "Traceback" not in said.err
    assert complaint.startswith("fedminmax: error: ")
    return complaint.removeprefix("fedminmax: error: ")
