"""The README is short, its Python runs as written, its numbers are those of committed results."""

import json
import re
import subprocess
import sys
from pathlib import Path

from scripts.benefit_picture import PICTURE, census_scores, picture

from fedminmax.methods.card import TOLERANCE

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
# What a run of the demo gives; a slow test runs it (tests/cli/test_demo.py).
DEMO = [("female", 343, 214), ("male", 214, 226), ("everyone", 222, 225)]


def test_the_page_and_its_example_are_short() -> None:
    assert len(README.splitlines()) <= 120
    assert len(BLOCKS) == 1
    assert len([line for line in BLOCKS[0].splitlines() if line]) <= 15


def test_the_numbers_are_those_of_committed_results() -> None:
    assert picture(DEMO) == PICTURE.read_text()
    assert (
        "wrong predictions of 1,000 women fall from 343 to 214, those of men rise from 214 to 226"
        in README
    )
    assert (
        "214 of 1,000 women are misclassified instead of 343; in return, 12 more of 1,000 men"
        in README
    )
    (alone, _), (pooled, everyone), (ours, own_everyone) = (
        (f"{worst:.3f}", f"{mean:.3f}") for _, worst, mean in census_scores()
    )
    assert f"the worst group's Brier score is {ours}, against {pooled} for boosted trees" in README
    assert f"trees in each state alone {alone}" in README
    assert f"({everyone} against {own_everyone})" in README
    runs = (ROOT / "experiments" / "table_models" / "near_minimax.jsonl").read_text().splitlines()
    rounds = {
        run["rounds"]
        for run in map(json.loads, runs)
        if (run["table"], run["tolerance"]) == ("acs", TOLERANCE)
    }
    assert rounds == {7}
    assert "The census takes 7 communication rounds" in README
    assert f"at most {100 * TOLERANCE:g}% above the lowest" in README


def test_the_pages_that_go_on_with_the_example_run_as_written(tmp_path: Path) -> None:
    """They go on with a federation of yours; other pages have tests of their own."""
    for name in ("examples.md", "methods.md"):
        page = (ROOT / "docs" / name).read_text()
        program = tmp_path / "page.py"
        blocks = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
        assert blocks
        program.write_text("\n".join([BLOCKS[0], *blocks]))
        done = subprocess.run(
            [sys.executable, str(program)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout
    assert (tmp_path / "run" / "checkpoint.bin").exists()


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
