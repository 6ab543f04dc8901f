"""Rounds in TensorBoard and MLflow: what is there is what the run folder says."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.cli.command import run_here
from tests.cli.hospitals import rounds_of, write_config, write_hospitals

ERROR = "fedminmax: error: "
# One process for all calls: importing MLflow takes seconds, and warns of itself.
CALLS = """
from fedminmax.cli.main import main
words = ["train", "fedminmax.toml", "--out", "run", "--mlflow-uri", "sqlite:///rounds.db"]
first = main([*words, "--rounds", "3"])
second = main(words)
wrong = main(["train", "fedminmax.toml", "--out", "other", "--mlflow-uri", "nowhere://rounds"])
print(first, second, wrong)
"""
# A tracking address that takes no end of a run, then one that takes no rounds either.
FULL = """
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from fedminmax.cli.main import main

take = MlflowClient.log_batch

def refuse(self, run, metrics=(), params=()):
    if metrics:
        raise MlflowException("no room\\nfor rounds")
    take(self, run, params=params)

def refuse_the_end(self, run):
    raise MlflowException("no room\\nfor the end")

MlflowClient.set_terminated = refuse_the_end
words = ["train", "fedminmax.toml", "--mlflow-uri", "sqlite:///rounds.db", "--out"]
first = main([*words, "run"])
MlflowClient.log_batch = refuse
print(first, main([*words, "other"]))
"""


def test_tensorboard_has_each_rounds_risks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_hospitals(tmp_path)
    monkeypatch.chdir(tmp_path)
    config = write_config(tmp_path, method="rounds = 6\n[logging]\ntensorboard = true")
    run_here("train", config, "--rounds", "4")
    run_here("train", config)
    for run in (Path("runs/fedminmax"), Path("runs/fedminmax/baseline")):
        events = EventAccumulator(str(run / "tensorboard"))
        events.Reload()
        for number, group in enumerate(("Female", "Male")):
            found = [(event.step, event.value) for event in events.Scalars(f"risk/{group}")]
            expected = [(line["round"], line["risks"][number]) for line in rounds_of(run)]
            np.testing.assert_allclose(found, expected, rtol=1e-6)
        # FedAvg weighs no groups.
        assert ("weight/Female" in events.Tags()["scalars"]) == (run.name != "baseline")


@pytest.mark.slow
def test_mlflow_has_each_rounds_risks_and_the_options(tmp_path: Path) -> None:
    write_hospitals(tmp_path)
    write_config(tmp_path, method='rounds = 4\nbaseline = "none"')
    done = subprocess.run(
        [sys.executable, "-c", CALLS], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "0 0 2"
    complaint = done.stderr.splitlines()[-1]
    assert complaint.startswith(
        "fedminmax: error: mlflow_uri = 'nowhere://rounds' cannot be used ("
    )
    with closing(sqlite3.connect(tmp_path / "rounds.db")) as database:
        found = database.execute(
            "select step, value from metrics where key = 'risk/Female' order by step"
        ).fetchall()
        options = dict(database.execute("select key, value from params").fetchall())
        runs = database.execute("select count(*) from runs").fetchone()
    assert found == [(line["round"], line["risks"][0]) for line in rounds_of(tmp_path / "run")]
    assert options["adversary_rate"] == "0.1"
    assert runs == (1,)


@pytest.mark.slow
def test_where_mlflow_fails_the_first_reason_is_told(tmp_path: Path) -> None:
    write_hospitals(tmp_path)
    write_config(tmp_path, method='rounds = 4\nbaseline = "none"')
    done = subprocess.run(
        [sys.executable, "-c", FULL], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "2 2"
    assert "Traceback" not in done.stderr
    end, rounds = [line for line in done.stderr.splitlines() if line.startswith(ERROR)]
    assert end == (
        f"{ERROR}MLflow did not accept the end of the run (no room for the end); it has the "
        "rounds, and the run folder has everything"
    )
    assert (tmp_path / "run" / "results.json").exists()
    assert rounds.startswith(f"{ERROR}MLflow did not accept round 1 (no room for rounds)")
