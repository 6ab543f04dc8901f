"""`fedminmax federation local` with [audit]: real processes, masked, as one process measures it."""

import json
from pathlib import Path

import pytest

from tests.cli.command import fedminmax
from tests.network.network_problem import SITES
from tests.runs.test_network_audit import assert_same, results_of, write_task

pytestmark = pytest.mark.slow


def test_predictions_of_real_sites_are_measured_and_compared(tmp_path: Path) -> None:
    config = write_task(tmp_path, "ill")
    out = tmp_path / "apart"
    done = fedminmax("federation", "local", str(config), "--out", str(out), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "secure aggregation: the server learns only totals" in done.stderr
    words = ["--target", "ill", "--groups", "sex", "--predictions", "new", "--against", "old"]
    files = [f"{name}.csv" for name in SITES]
    together = fedminmax("audit", *files, *words, "--out", "together", "--json", cwd=tmp_path)
    expected = json.loads(together.stdout)["results"]
    found = results_of(out)
    for part in ("test", "change", "verdict"):
        assert_same(found[part], expected[part], part)
    assert found["secure_aggregation"] == 3
    assert found["verdict"]["verdict"] in done.stdout.lower()
    again = fedminmax("federation", "local", str(config), "--out", str(out), cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    report = fedminmax("report", str(out), "--format", "annex-iv", cwd=tmp_path)
    assert report.returncode == 0, report.stderr
