"""Help answers at once because it imports nothing heavy, and every page has an example."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import command, fedminmax_process

PAGES: list[list[str]] = [[], ["reproduce"], ["reproduce", "synthetic"]]


@pytest.mark.parametrize("page", PAGES)
def test_help_has_an_example(page: list[str], tmp_path: Path) -> None:
    done = fedminmax_process(*page, "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert "example: fedminmax" in done.stdout


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; from fedminmax.cli.main import build_parser; build_parser().format_help();"
        "print([m for m in ('torch', 'numpy', 'rich', 'scipy') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_version(tmp_path: Path) -> None:
    assert fedminmax_process("--version", cwd=tmp_path).stdout.strip() == "0.1.0"


def test_a_reader_who_has_had_enough_is_no_error(tmp_path: Path) -> None:
    """As in `fedminmax methods | head`: the other end of the pipe is closed."""
    with subprocess.Popen(
        command("methods"), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1
