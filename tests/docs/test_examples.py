"""Every example runs as it is, and its page is in the site's navigation."""

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_outputs(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []


def test_every_example_has_a_page() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    for path in NOTEBOOKS + SCRIPTS:
        assert f"examples/{path.stem}.md" in navigation
        assert f"../examples/{path.name}" in listed


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    where = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=None, resources=where, kernel_name="python3").execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert outputs
    # A command that fails does not stop a notebook.
    assert "fedminmax: error" not in str(outputs)
    assert "command not found" not in str(outputs)
    capfd.readouterr()


@pytest.mark.slow
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_runs(path: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    if path.stem == "ten_methods":
        worst = {words[0]: max(map(float, words[-3:-1])) for words in lines[1:]}
        assert len(lines) == 11
        assert min(worst, key=worst.__getitem__) in {"APStar", "FedMinMax", "FedMinMaxFast"}
        assert max(worst, key=worst.__getitem__) == "FedAvg"
    else:
        # A smaller share lowers the worst group's risk.
        worst_risks = [max(float(word.strip("[],")) for word in words[1:]) for words in lines[1:]]
        assert worst_risks == sorted(worst_risks, reverse=True)
        assert len(set(worst_risks)) == 3
