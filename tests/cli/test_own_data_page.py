"""The pages about your own data and about the model run as written, command by command."""

import re
import subprocess
import sys
from pathlib import Path

import polars as pl

from tests.cli.command import fedminmax
from tests.cli.hospitals import results_of

DOCS = Path(__file__).parents[2] / "docs"
PAGES = "".join((DOCS / name).read_text() for name in ("own_data.md", "using_model.md"))
BLOCKS = re.findall(r"```(python|sh)\n(.*?)```", PAGES, flags=re.DOTALL)


def test_the_commands_run_one_after_another(tmp_path: Path) -> None:
    said = ""
    for language, block in BLOCKS:
        commands = [block] if language == "python" else block.splitlines()
        for one in commands:
            said += _run(language, one, tmp_path)
    ours, baseline = (
        results_of(tmp_path / "runs" / "fedminmax" / folder)["test"]["metrics"]["risk"]
        for folder in ("", "baseline")
    )
    assert baseline["worst_group"] == "female"
    assert ours["by_group"][0]["value"] < baseline["by_group"][0]["value"]
    assert len(pl.read_csv(tmp_path / "predictions.csv")) == 200
    assert "“female” was worst off with the standard model" in " ".join(said.split())


def _run(language: str, one: str, folder: Path) -> str:
    if language == "python":
        done = subprocess.run(
            [sys.executable, "-c", one], cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout
    program, *rest = one.split()
    assert program == "fedminmax"
    said = fedminmax(*rest, cwd=folder)
    assert said.returncode == 0, said.stderr
    return said.stdout
