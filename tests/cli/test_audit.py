"""`fedminmax audit`: models from elsewhere are measured as fairlearn, scikit-learn and we do it."""

import json
import math
import pickle
from pathlib import Path
from typing import Any

import fairlearn.metrics
import numpy as np
import onnx
import pandas as pd
import polars as pl
import pytest
import skops.io
from onnx import TensorProto, helper
from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import brier_score_loss, roc_auc_score
from sklearn.tree import DecisionTreeClassifier

from fedminmax.metrics.intervals import MIN_ROWS
from tests.cli.command import complaint, fedminmax
from tests.cli.hospitals import HOSPITALS, write_config, write_hospitals

FILES = tuple(f"{name}.csv" for name in HOSPITALS)
ILL = ("--target", "ill", "--groups", "sex")
COLUMNS = ("--columns", "age,dose")


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files, each with the scores of a model, and the model in several forms."""
    folder = tmp_path_factory.mktemp("audit")
    write_hospitals(folder)
    pooled = pl.concat([pl.read_csv(folder / file) for file in FILES])
    x = pd.DataFrame(pooled.select("age", "dose").to_dict(as_series=False))
    model = LogisticRegression().fit(x, pooled["ill"].to_numpy())
    for file in FILES:
        frame = pl.read_csv(folder / file)
        own = pd.DataFrame(frame.select("age", "dose").to_dict(as_series=False))
        scores = model.predict_proba(own)
        frame.with_columns(
            pl.Series("score", scores[:, 1]),
            pl.Series("log", np.log(scores[:, 1])),
            half=pl.lit(0.5),
        ).write_csv(folder / file)
    inputs = [("X", FloatTensorType([None, 2]))]
    for name, options in (("model", {"zipmap": False}), ("zipped", {})):
        content = to_onnx(model, initial_types=inputs, options=options)
        (folder / f"{name}.onnx").write_bytes(content.SerializeToString())
    cost = LinearRegression().fit(x.to_numpy(np.float32), pooled["cost"].to_numpy())
    (folder / "cost.onnx").write_bytes(to_onnx(cost, initial_types=inputs).SerializeToString())
    skops.io.dump(model, folder / "model.skops")
    (folder / "model.pkl").write_bytes(pickle.dumps(model))
    return folder


def audited(folder: Path, out: str, *words: str) -> dict[str, Any]:
    done = fedminmax("audit", *words, "--out", out, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def values(results: dict[str, Any], metric: str) -> list[float]:
    return [entry["value"] for entry in results["test"]["metrics"][metric]["by_group"]]


@pytest.mark.parametrize(
    ("words", "digits"),
    [
        (("model.onnx", *FILES, *ILL, *COLUMNS), 6),
        (("zipped.onnx", *FILES, *ILL, *COLUMNS), 6),
        (("model.skops", *FILES, *ILL), 12),
        ((*FILES, *ILL, "--predictions", "score"), 12),
    ],
    ids=["onnx", "zipmap", "skops", "column"],
)
def test_every_form_of_a_model_has_the_scores_of_scikit_learn(
    hospitals: Path, tmp_path: Path, words: tuple[str, ...], digits: int
) -> None:
    found = audited(hospitals, str(tmp_path / "run"), *words)["results"]
    assert len(found["notes"]) == 1
    pooled = pl.concat([pl.read_csv(hospitals / file) for file in FILES])
    for place, sex in enumerate(("Female", "Male")):
        own = pooled.filter(pl.col("sex") == sex)
        ill = (own["ill"] == "yes").to_numpy()
        # Over both classes the score is twice scikit-learn's.
        brier = 2.0 * brier_score_loss(ill, own["score"].to_numpy())
        assert values(found, "risk")[place] == pytest.approx(brier, abs=10.0**-digits)
        right = ((own["score"].to_numpy() > 0.5) == ill).mean()
        assert values(found, "accuracy")[place] == pytest.approx(right)
        area = roc_auc_score(ill, own["score"].to_numpy())
        assert values(found, "auroc")[place] == pytest.approx(area, abs=1e-3)


def test_differences_and_ratios_are_fairlearns_overall_and_at_each_site(
    hospitals: Path, tmp_path: Path
) -> None:
    tables = {}
    for file in FILES:
        table = pl.concat([pl.read_csv(hospitals / file)] * 9)
        table.write_csv(tmp_path / file)
        tables[file.removesuffix(".csv")] = table
    words = (*FILES, *ILL, "--predictions", "score")
    found = audited(tmp_path, str(tmp_path / "run"), *words)["results"]
    measured = {site: found["site_parity"].get(site) for site in tables}
    for own, table in (
        (found["test"]["parity"], pl.concat(tables.values())),
        *((measured[site], table) for site, table in tables.items()),
    ):
        ill, chosen = (table["ill"] == "yes").to_numpy(), (table["score"] > 0.5).to_numpy()
        few = int(table.group_by("sex", "ill").len()["len"].to_numpy().min())
        for measure, oracle in (
            ("demographic_parity", fairlearn.metrics.demographic_parity_difference),
            ("equalized_odds", fairlearn.metrics.equalized_odds_difference),
        ):
            if few >= MIN_ROWS:
                expected = oracle(ill, chosen, sensitive_features=table["sex"].to_numpy())
                assert own[measure]["difference"]["value"] == pytest.approx(expected, abs=1e-12)
    assert all(measured.values())


@pytest.mark.parametrize("positive", ["yes", "no"])
def test_a_model_that_names_no_classes_is_told_apart_by_the_positive_one(
    hospitals: Path, tmp_path: Path, positive: str
) -> None:
    """As converters of XGBoost write it: labels 0 and 1, and a probability for each."""
    pooled = pl.concat([pl.read_csv(hospitals / file) for file in FILES])
    x = pooled.select("age", "dose").to_numpy()
    model = LogisticRegression().fit(x, (pooled["ill"] == positive).to_numpy().astype(int))
    inputs = [("X", FloatTensorType([None, 2]))]
    content = to_onnx(model, initial_types=inputs, options={"zipmap": False})
    (tmp_path / "coded.onnx").write_bytes(content.SerializeToString())
    files = [str(hospitals / file) for file in FILES]
    words = ("coded.onnx", *files, *ILL, *COLUMNS, "--positive", positive)
    found = audited(tmp_path, "run", *words)["results"]
    right = model.predict(x) == (pooled["ill"] == positive).to_numpy()
    accuracy = found["test"]["metrics"]["accuracy"]["overall"]["value"]
    assert accuracy == pytest.approx(right.mean())
    other = "no" if positive == "yes" else "yes"
    assert f"taken for '{other}', '{positive}', in this order" in found["notes"][-1]


def test_our_own_export_is_measured_as_evaluate_does(hospitals: Path, tmp_path: Path) -> None:
    write_config(hospitals, name="own")
    run, exported = str(tmp_path / "run"), str(tmp_path / "own.onnx")
    for words in (
        ("train", "own.toml", "--out", run),
        ("export", run, "--raw-columns", "--onnx", exported),
    ):
        done = fedminmax(*words, cwd=hospitals)
        assert done.returncode == 0, done.stderr
    done = fedminmax("evaluate", run, "later.csv", "--json", cwd=hospitals)
    expected = json.loads(done.stdout)["test"]["metrics"]
    for name, model in (("onnx", exported), ("folder", run)):
        out = str(tmp_path / name)
        found = audited(hospitals, out, model, "later.csv", *ILL)["results"]["test"]["metrics"]
        assert found.keys() == expected.keys()
        for metric, ours in expected.items():
            for part in ("overall", "difference"):
                for end in ("value", "low", "high"):
                    assert found[metric][part][end] == pytest.approx(ours[part][end], abs=1e-5)


def test_two_models_are_compared_record_by_record(hospitals: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ("model.onnx", *FILES, *ILL, *COLUMNS, "--against", "half")
    found = audited(hospitals, str(out), *words)["results"]
    change = found["change"]["metrics"]["risk"]
    # Every record has the Brier score 1/2 with the other model.
    assert [own["value"] + 0.5 for own in change["by_group"]] == pytest.approx(
        values(found, "risk")
    )
    assert change["overall"]["high"] < 0.0
    same = (*words[:-1], "model.skops")
    again = audited(hospitals, str(tmp_path / "same"), *same)["results"]
    assert again["verdict"]["verdict"] == "no clear change"
    assert abs(again["change"]["metrics"]["risk"]["overall"]["value"]) < 1e-6
    done = fedminmax("report", str(out), "--out", str(tmp_path / "r.html"), cwd=hospitals)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "r.html").read_text()
    assert "model.onnx" in page
    assert "3 sites · 210 records" in page


def test_a_number_is_measured_in_its_unit(hospitals: Path, tmp_path: Path) -> None:
    words = ("cost.onnx", *FILES, "--target", "cost", "--groups", "sex", *COLUMNS)
    found = audited(hospitals, str(tmp_path / "run"), *words)["results"]
    assert found["task"] == "regression"
    pooled = pl.concat([pl.read_csv(hospitals / file) for file in FILES])
    x = pooled.select("age", "dose").to_numpy().astype(np.float32)
    fitted = LinearRegression().fit(x, pooled["cost"].to_numpy())
    squares = (fitted.predict(x) - pooled["cost"].to_numpy()) ** 2
    overall = found["test"]["metrics"]["risk"]["overall"]["value"]
    assert overall == pytest.approx(squares.mean(), rel=1e-5)


def test_sites_of_one_file_add_up(hospitals: Path, tmp_path: Path) -> None:
    pooled = [pl.read_csv(hospitals / file).with_columns(hospital=pl.lit(file)) for file in FILES]
    pl.concat(pooled).write_csv(tmp_path / "all.csv")
    words = (*ILL, "--predictions", "score")
    whole = audited(tmp_path, "one", "all.csv", *words, "--site-column", "hospital")
    parts = audited(hospitals, str(tmp_path / "three"), *FILES, *words)
    assert values(whole["results"], "risk") == pytest.approx(values(parts["results"], "risk"))
    census = json.loads((tmp_path / "one" / "census.json").read_text())
    assert sorted(map(sum, census["test"])) == sorted(HOSPITALS.values())


def constant_output(folder: Path, name: str, width: int, value: float) -> str:
    """An ONNX file whose outputs are the same for every record."""
    nodes = [
        helper.make_node("ReduceSum", ["X", "one"], ["sum"], keepdims=1),
        helper.make_node("Mul", ["sum", "zero"], ["nothing"]),
        helper.make_node("Add", ["nothing", "values"], ["out"]),
    ]
    graph = helper.make_graph(
        nodes,
        "constant",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, [None, 2])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, [None, width])],
        [
            helper.make_tensor("one", TensorProto.INT64, [1], [1]),
            helper.make_tensor("zero", TensorProto.FLOAT, [1], [0.0]),
            helper.make_tensor("values", TensorProto.FLOAT, [1, width], [value] * width),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / name)
    return name


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("model.pkl", *FILES, *ILL), "is a pickle"),
        (("north.csv", *FILES, *ILL), "cannot be read as ONNX"),
        (("absent.onnx", *FILES, *ILL), "does not exist"),
        (("model.onnx", *FILES, *ILL), "--columns"),
        (("model.onnx", *FILES, *ILL, "--columns", "age"), "2 columns"),
        (("model.onnx", *FILES, *ILL, "--columns", "age,missing"), "'missing'"),
        (("model.onnx", *FILES, *ILL, "--columns", "age,ward"), "is not a number"),
        (("model.onnx", *FILES, "--target", "stage", "--groups", "sex", *COLUMNS), "2 outputs"),
        (("cost.onnx", *FILES, *ILL, *COLUMNS), "no probabilities"),
        ((*FILES, *ILL, "--predictions", "log"), "no probabilities"),
        ((*FILES, *ILL, "--predictions", "nowhere"), "'nowhere'"),
        (("three.onnx", *FILES, *ILL, *COLUMNS), "3 outputs"),
        (("half.onnx", *FILES, *ILL, *COLUMNS), "add up to 0.6"),
        (("nan.onnx", *FILES, *ILL, *COLUMNS), "predicts no number for record 1 (90 such records)"),
        (("above.onnx", *FILES, *ILL, *COLUMNS), "from 1.5 to 1.5, which are no probabilities"),
        (("gaps.csv", *ILL, "--predictions", "score"), "predicts no number for record 1"),
        (("tree.skops", *FILES, *ILL), "does not trust"),
        (("model.onnx", *ILL, *COLUMNS), "files with records"),
    ],
)
def test_a_model_that_cannot_be_measured_is_refused_in_one_line(
    hospitals: Path, tmp_path: Path, words: tuple[str, ...], expected: str
) -> None:
    constant_output(hospitals, "three.onnx", 3, 1.0 / 3.0)
    constant_output(hospitals, "half.onnx", 2, 0.3)
    constant_output(hospitals, "nan.onnx", 2, math.nan)
    constant_output(hospitals, "above.onnx", 1, 1.5)
    north = pl.read_csv(hospitals / "north.csv")
    north.with_columns(score=pl.col("score").shift(1)).write_csv(hospitals / "gaps.csv")
    tree = DecisionTreeClassifier(max_depth=2)
    tree.fit(north.select("age", "dose").to_numpy(), north["ill"].to_numpy())
    skops.io.dump(tree, hospitals / "tree.skops")
    line = complaint("audit", *words, "--out", str(tmp_path / "run"), cwd=hospitals)
    assert expected in line
    assert not (tmp_path / "run").exists()


def test_predictions_that_are_written_are_those_that_are_measured(
    hospitals: Path, tmp_path: Path
) -> None:
    scored = tmp_path / "scored"
    words = ("model.skops", *FILES, *ILL, "--against", "half")
    first = audited(hospitals, str(tmp_path / "one"), *words, "--write-predictions", str(scored))
    files = tuple(str(scored / file) for file in FILES)
    words = (*files, *ILL, "--predictions", "prediction", "--against", "prediction_against")
    second = audited(hospitals, str(tmp_path / "two"), *words)
    for part in ("risk", "auroc", "accuracy"):
        assert values(first["results"], part) == pytest.approx(values(second["results"], part))
        assert values(first["against"], part) == pytest.approx(values(second["against"], part))


def test_a_folder_with_files_is_not_overwritten(hospitals: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    words = ("audit", *FILES, *ILL, "--predictions", "score", "--out", str(tmp_path))
    assert "already exists" in complaint(*words, cwd=hospitals)
    assert [entry.name for entry in tmp_path.iterdir()] == ["notes.txt"]
