"""`mlflow models serve` on what `train --mlflow-uri` logged and `export --mlflow-model` wrote."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path

import polars as pl
import pytest

from tests.cli.command import complaint_here, fedminmax_process, run_here
from tests.cli.hospitals import write_config, write_hospitals

SECONDS_TO_START = 300.0


@contextmanager
def served(model: str, tracking: str) -> Iterator[int]:
    """Serve a model on loopback, and yield its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["-m", "mlflow", "models", "serve", "-m", model, "--env-manager", "local"]
    # The scoring server is found on the path.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    process = subprocess.Popen(
        [sys.executable, *words, "--port", str(port), "--workers", "1"],
        env=os.environ | {"MLFLOW_TRACKING_URI": tracking, "PATH": path, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + SECONDS_TO_START
        while not _answers(port):
            assert process.poll() is None, "the server ended"
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.2)
        yield port
    finally:
        os.killpg(process.pid, 15)
        process.wait(timeout=20)


def _answers(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/ping")
        return connection.getresponse().status == HTTPStatus.OK
    except OSError:
        return False
    finally:
        connection.close()


def ask(port: int, rows: pl.DataFrame) -> pl.DataFrame:
    """Post rows as JSON, null where a value is missing, and return the answers."""
    split = {"columns": rows.columns, "data": [list(row) for row in rows.rows()]}
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    content, kind = json.dumps({"dataframe_split": split}), {"Content-Type": "application/json"}
    connection.request("POST", "/invocations", content, kind)
    answer = connection.getresponse().read()
    connection.close()
    return pl.DataFrame(json.loads(answer)["predictions"])


@pytest.mark.slow
def test_a_served_model_answers_as_predict_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_hospitals(tmp_path)
    method = 'name = "fedminmax-fast"\nbaseline = "none"'
    config = write_config(tmp_path, "stage", model='kind = "logistic"', method=method)
    tracking = f"sqlite:///{tmp_path / 'mlflow.db'}"
    # In a process of its own: SQLAlchemy warns of what MLflow imports.
    done = fedminmax_process("train", str(config), "--mlflow-uri", tracking, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = pl.read_csv("later.csv").select("age", "dose", "ward")
    gaps = pl.DataFrame(
        {"age": [None, 50, 61], "dose": [0.5, None, 1.5], "ward": ["a", None, "elsewhere"]},
        schema=rows.schema,
    )
    asked = pl.concat([rows, gaps])
    asked.write_csv("asked.csv")
    run_here("predict", "runs/fedminmax", "asked.csv", "--out", "expected.csv")
    expected = pl.read_csv("expected.csv").drop("row")
    run_here("export", "runs/fedminmax", "--mlflow-model", "served")
    again = complaint_here(capsys, "export", "runs/fedminmax", "--mlflow-model", "served")
    assert again == "served exists; give another --mlflow-model, or --force"
    logged = Path("runs/fedminmax/mlflow_run.txt").read_text().strip()
    for model in ("served", f"runs:/{logged}/model"):
        with served(model, tracking) as port:
            found = ask(port, asked)
        assert found.columns == expected.columns
        assert found["predicted"].to_list() == expected["predicted"].to_list()
        for name in expected.columns[1:]:
            assert found[name].to_list() == pytest.approx(expected[name].to_list(), abs=1e-9)
