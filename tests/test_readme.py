"""The README's Python runs as written, fits on a screen, and names the commands that exist."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def test_the_first_example_has_at_most_twenty_lines() -> None:
    assert 0 < len(BLOCKS[0].splitlines()) <= 20


def test_the_examples_run_one_after_another(tmp_path: Path) -> None:
    program = tmp_path / "readme.py"
    program.write_text("".join(BLOCKS))
    done = subprocess.run(
        [sys.executable, str(program)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["20", "40", "60"]
    assert (tmp_path / "run" / "checkpoint.bin").exists()


def test_the_page_of_methods_runs_as_written(tmp_path: Path) -> None:
    """It goes on with a federation of yours; other pages have tests of their own."""
    page = (ROOT / "docs" / "methods.md").read_text()
    program = tmp_path / "methods.py"
    blocks = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    program.write_text("\n".join([BLOCKS[0], *blocks]))
    done = subprocess.run(
        [sys.executable, str(program)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_local_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_ci_runs_the_readmes_test_command() -> None:
    ci = (ROOT / ".ci" / "run").read_text()
    assert "make test" in README
    assert "make demo" in README
    assert "make test" in ci
    assert "make test-slow" in ci
    assert "make check" in ci
