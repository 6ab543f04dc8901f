"""Run the command line in this process: no half a second of imports for each call."""

import signal
from collections.abc import Callable

import pytest

from fedminmax.cli.main import main


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
