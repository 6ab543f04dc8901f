"""Saved models: every way to give rows leads to the same answers, also in a fresh process."""

import json
import math
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path

import numpy as np
import onnxruntime
import pandas as pd
import polars as pl
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

import fedminmax
from fedminmax.exports.onnx import write_onnx
from fedminmax.exports.saved_model import load_model, save_model
from tests.complaints import complaint_of
from tests.exports.saved_models import saved_model

ROWS = {
    "age": [30.5, None, 70.0],
    "ward": ["a", "b", None],
    "since": [date(2021, 5, 1), date(2022, 1, 31), date(2020, 2, 29)],
    "smoker": [True, False, True],
}


CASES = {
    "logistic": saved_model(("no", "yes")),
    "mlp of three classes": saved_model(("low", "mid", "high"), (8, 4)),
    "mixture": saved_model(("no", "yes"), (6,), members=3),
    "linear": saved_model(()),
    "mixture of regressions": saved_model((), (5,), members=2),
}


@pytest.mark.parametrize("name", CASES)
def test_a_saved_model_predicts_as_before(name: str, tmp_path: Path) -> None:
    before = CASES[name]
    save_model(tmp_path / "model.safetensors", before)
    after = load_model(tmp_path)
    assert after.encoding == before.encoding
    assert (after.kind, after.hidden, after.members) == (before.kind, before.hidden, before.members)
    assert after.predict(ROWS).tolist() == before.predict(ROWS).tolist()
    if before.classes:
        probabilities = after.predict_proba(ROWS)
        assert np.array_equal(probabilities, before.predict_proba(ROWS))
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    else:
        assert complaint_of(lambda: after.predict_proba(ROWS)) == (
            "the model predicts a quantity, not classes; use predict"
        )


def test_equal_models_are_equal_files(tmp_path: Path) -> None:
    """safetensors orders its header by chance: of eight files, two would hardly be equal."""
    path = tmp_path / "model.safetensors"
    contents = set()
    for _ in range(8):
        save_model(path, CASES["mixture"])
        contents.add(path.read_bytes())
    assert len(contents) == 1
    with safe_open(path, framework="pt") as file:
        assert file.metadata()["format"] == "1"


@pytest.mark.parametrize("name", CASES)
def test_onnx_predicts_the_same(name: str, tmp_path: Path) -> None:
    saved = CASES[name]
    write_onnx(tmp_path / "model.onnx", saved)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    x = torch.randn(500, len(saved.encoding.names))
    (found,) = session.run(None, {"features": x.numpy()})
    expected = saved.scores(x)
    np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=1e-5, atol=1e-5)
    about = session.get_modelmeta().custom_metadata_map
    assert '"ward = a", "ward = b", "ward is missing"' in about["feature_names"]
    assert about["target"] == "y"


def test_rows_may_come_in_any_form(tmp_path: Path) -> None:
    saved = CASES["logistic"]
    expected = saved.predict_proba(ROWS)
    frame = pl.DataFrame(ROWS)
    frame.write_csv(tmp_path / "rows.csv")
    frame.write_parquet(tmp_path / "rows.parquet")
    pandas = pd.DataFrame(ROWS)
    forms = {
        "polars": frame,
        "csv": tmp_path / "rows.csv",
        "parquet": str(tmp_path / "rows.parquet"),
        "pandas": pandas,
        "pandas times": pandas.assign(since=pd.to_datetime(pandas["since"])),
        "pandas categories": pandas.astype({"ward": "category", "smoker": object}),
        "pandas nullable": pandas.convert_dtypes(),
    }
    for name, rows in forms.items():
        assert np.array_equal(saved.predict_proba(rows), expected), name


def test_what_is_no_table() -> None:
    saved = CASES["logistic"]
    assert "a list was given; give a file, a data frame" in complaint_of(lambda: saved.predict([1]))
    assert "the given table has no rows" in complaint_of(lambda: saved.predict({"age": []}))
    assert "the given table (1 row) has no column 'ward', which is a feature" in complaint_of(
        lambda: saved.predict({"age": [1]})
    )


def test_one_line_in_a_fresh_process(tmp_path: Path) -> None:
    saved = CASES["mlp of three classes"]
    save_model(tmp_path / "model.safetensors", saved)
    pl.DataFrame(ROWS).write_csv(tmp_path / "rows.csv")
    line = "import fedminmax; print(fedminmax.load_model('.').predict('rows.csv').tolist())"
    done = subprocess.run(
        [sys.executable, "-c", line], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(saved.predict(ROWS).tolist())
    assert fedminmax.load_model is load_model


@pytest.mark.parametrize("size", [0, 7, 8, 100, -1])
def test_a_file_that_is_cut_off(size: int, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_model(path, CASES["logistic"])
    path.write_bytes(path.read_bytes()[:size])
    assert "is not a model file or is damaged; train again" in complaint_of(
        lambda: load_model(path)
    )


@pytest.mark.parametrize(
    ("key", "old", "new"),
    [
        ("hidden", "[8, 4]", "x"),
        ("hidden", "[8, 4]", '["a"]'),
        ("hidden", "[8, 4]", "[-1]"),
        # Two matrices that no memory could hold.
        ("hidden", "[8, 4]", "[10000000, 10000000]"),
        ("members", "1", "0"),
        ("members", "1", "many"),
        ("members", "1", "1000000000"),
        ("encoding", '"deviation":10.0', '"deviation":0.0'),
        ("encoding", '"mean":50.0', '"mean":1e999'),
        ("encoding", '"column":"age","mean"', '"column":"aged","mean"'),
        ("encoding", '"categories":["a","b"],"flags', '"categories":["a","c"],"flags'),
        ("encoding", '[["f"],["m"]]', '[["f","g"],["m","g"]]'),
        ("encoding", '[["f"],["m"]]', "[]"),
        ("encoding", '"classes":["low","mid","high"]', '"classes":[]'),
    ],
)
def test_a_file_that_contradicts_itself(key: str, old: str, new: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_model(path, CASES["mlp of three classes"])
    with safe_open(path, framework="pt") as file:
        metadata = dict(file.metadata())
        tensors = {name: file.get_tensor(name) for name in file.offset_keys()}
    text = metadata[key]
    if key == "encoding":
        text = json.dumps(json.loads(text), separators=(",", ":"))
    assert old in text
    metadata[key] = text.replace(old, new)
    save_file(tensors, path, metadata)
    said = complaint_of(lambda: load_model(path))
    assert said.startswith(str(path))
    assert said.endswith("train again")


@pytest.mark.parametrize("change", [torch.Tensor.double, lambda weights: weights * math.nan])
def test_a_file_of_other_numbers(change: Callable[[Tensor], Tensor], tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_model(path, CASES["logistic"])
    with safe_open(path, framework="pt") as file:
        metadata = dict(file.metadata())
        tensors = {name: change(file.get_tensor(name)) for name in file.offset_keys()}
    save_file(tensors, path, metadata)
    assert "has values that are not finite 32-bit numbers" in complaint_of(lambda: load_model(path))
