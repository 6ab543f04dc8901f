"""ONNX files with the encoding inside: raw columns in, the answers of a saved model out."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import onnxruntime
import polars as pl
import pytest

from fedminmax.data.tables.encoding import EncodedCategory
from fedminmax.exports.onnx import write_onnx
from fedminmax.exports.saved_model import SavedModel
from tests.complaints import complaint_of
from tests.exports.saved_models import (
    ROWS,
    saved_additive_model,
    saved_model,
    saved_network_on_effects,
)

TRUTH = {"yes": 1.0, "1": 1.0, "true": 1.0, "no": 0.0, "0": 0.0}


def with_code(saved: SavedModel) -> SavedModel:
    """The same model with an encoding in which -999 is a missing value."""
    encoding = saved.encoding
    schema = replace(encoding.schema, missing_values=(*encoding.schema.missing_values, "-999"))
    return replace(saved, encoding=replace(encoding, schema=schema))


def columns_of(rows: dict[str, list[str]]) -> dict[str, np.ndarray]:
    """The rows as ONNX takes them."""

    def number(text: str) -> float:
        return math.nan if text in ("", "NA") else float(text)

    def day(text: str) -> float:
        return float((date.fromisoformat(text) - date(1970, 1, 1)).days) if text else math.nan

    return {
        "age": np.array([[number(text)] for text in rows["age"]]),
        "ward": np.array([[text] for text in rows["ward"]], dtype=object),
        "since": np.array([[day(text)] for text in rows["since"]]),
        "smoker": np.array([[TRUTH.get(text, math.nan)] for text in rows["smoker"]]),
    }


@pytest.mark.parametrize("make", [saved_model, saved_additive_model, saved_network_on_effects])
@pytest.mark.parametrize("classes", [("no", "yes"), ("low", "mid", "high"), ()])
def test_raw_columns_give_the_answers_of_the_saved_model(
    make: Callable[..., SavedModel], classes: tuple[str, ...], tmp_path: Path
) -> None:
    saved = with_code(make(classes))
    write_onnx(tmp_path / "model.onnx", saved, columns=True)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    (found,) = session.run(None, columns_of(ROWS))
    frame = pl.DataFrame(ROWS)
    expected = saved.predict_proba(frame) if classes else saved.predict(frame)[:, None]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    about = json.loads(session.get_modelmeta().custom_metadata_map["inputs"])
    assert about["since"] == "days since 1970-01-01, NaN if missing"
    assert list(about) == ["age", "ward", "since", "smoker"]


def test_codes_give_the_answers_of_a_mixture_of_additive_models(tmp_path: Path) -> None:
    saved = saved_additive_model(("no", "yes"), members=3)
    write_onnx(tmp_path / "model.onnx", saved)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    frame = pl.DataFrame(ROWS)
    (found,) = session.run(None, {"codes": saved.encode(frame).numpy().astype(np.int64)})
    np.testing.assert_allclose(found, saved.predict_proba(frame), atol=1e-6)


def test_numbers_on_an_edge_are_in_the_bin_that_begins_there(tmp_path: Path) -> None:
    saved = saved_additive_model(("no", "yes"))
    write_onnx(tmp_path / "model.onnx", saved, columns=True)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    ages = ["18", "17.999999999999", "30.5", "-1e300", "1e300", "65"]
    rows = {name: [values[0]] * len(ages) for name, values in ROWS.items()} | {"age": ages}
    (found,) = session.run(None, columns_of(rows))
    np.testing.assert_allclose(found, saved.predict_proba(pl.DataFrame(rows)), atol=1e-6)
    assert len(np.unique(found[:3, 0])) == 3


def test_numbers_and_truth_values_may_be_spelled_otherwise(tmp_path: Path) -> None:
    saved = saved_model(("no", "yes"))
    schema = saved.encoding.schema
    features = tuple(
        replace(own, categories=("1", "x")) if own.column == "ward" else own
        for own in schema.features
    )
    encoded = tuple(
        replace(own, categories=("1", "x")) if isinstance(own, EncodedCategory) else own
        for own in saved.encoding.features
    )
    saved = replace(
        saved,
        encoding=replace(
            saved.encoding, schema=replace(schema, features=features), features=encoded
        ),
    )
    write_onnx(tmp_path / "model.onnx", saved, columns=True)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    texts = ["1", "1.0", "True", "x", "X", "01"]
    rows = {name: [values[0]] * len(texts) for name, values in ROWS.items()} | {"ward": texts}
    (found,) = session.run(None, columns_of(rows))
    # One at a time: X beside x is refused in a table, and here none of the categories.
    singly = [saved.predict_proba(pl.DataFrame(rows)[n]) for n in (0, 1, 2, 3, 5)]
    np.testing.assert_allclose(found[[0, 1, 2, 3, 5]], np.vstack(singly), atol=1e-6)
    np.testing.assert_allclose(found[4], found[5])


def test_a_column_cannot_have_the_name_of_the_output(tmp_path: Path) -> None:
    saved = saved_model(("no", "yes"))
    encoding, (first, *others) = saved.encoding, saved.encoding.features
    raw, *further = encoding.schema.features
    named = (replace(raw, column="probabilities"), *further)
    clash = replace(
        encoding,
        features=(replace(first, column="probabilities"), *others),
        schema=replace(encoding.schema, features=named),
    )
    saved = replace(saved, encoding=clash)
    said = complaint_of(lambda: write_onnx(tmp_path / "m.onnx", saved, columns=True))
    assert "column 'probabilities' has the name of the file's output" in said
