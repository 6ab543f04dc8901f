"""`train` with kind = "spline": from files to predictions, for every kind of target."""

import json
from pathlib import Path

import numpy as np
import onnxruntime
import polars as pl
import pytest

from fedminmax.exports.saved_model import load_model
from tests.cli.hospitals import TASKS, write_config, write_hospitals
from tests.cli.in_process import run_here


@pytest.mark.parametrize("target", TASKS)
def test_from_files_to_predictions(target: str, tmp_path: Path) -> None:
    write_hospitals(tmp_path)
    method = 'name = "fedminmax-fast"\nbaseline = "none"'
    config = write_config(tmp_path, target, model='kind = "spline"', method=method)
    folder = tmp_path / "run"
    run_here("train", config, "--out", folder)
    results = json.loads((folder / "results.json").read_text())
    assert results["model"]["kind"] == "spline"
    assert results["proof"]["ridge"] == 1e-4
    assert "A spline model" in (folder / "model_card.md").read_text()
    saved = load_model(folder)
    # Age and dose with 7 ramps each, and three wards.
    assert len(saved.encoding.names) == 2 * 8 + 3
    out = tmp_path / "predictions.csv"
    run_here("predict", folder, tmp_path / "later.csv", "--out", out)
    predicted = pl.read_csv(out)
    x = saved.encode(tmp_path / "later.csv")
    run_here("export", folder, "--onnx", tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    (exported,) = session.run(None, {"features": x.numpy()})
    columns = [name for name in predicted.columns if name.startswith("probability")]
    expected = predicted.select(columns or ["predicted"]).to_numpy()
    np.testing.assert_allclose(exported, expected, rtol=1e-6, atol=1e-6)
