"""`fedminmax train`, `evaluate` and `predict`: from three hospitals' files to figures by group."""

import json
from pathlib import Path

import numpy as np
import onnxruntime
import polars as pl
import pytest
from numpy.typing import NDArray
from scipy.stats import norm, t
from sklearn.linear_model import LinearRegression
from sklearn.preprocessing import StandardScaler

import fedminmax
from fedminmax.data.adult import adult_table
from fedminmax.findings.text import TOO_FEW
from tests.cli.command import run_here
from tests.cli.hospitals import (
    HOSPITALS,
    TASKS,
    results_of,
    rounds_of,
    write_config,
    write_hospitals,
)

FILES = {
    *["config.toml", "config.json", "census.json", "rounds.jsonl", "checkpoint.bin"],
    *["model.safetensors", "results.json", "model_card.md", "held_out.json"],
}


@pytest.fixture
def hospitals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_hospitals(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_rows_of_an_unknown_group_are_skipped_and_said(
    hospitals: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_here("train", write_config(hospitals, method="rounds = 2"))
    known = pl.read_csv("later.csv")
    others = known.head(7).with_columns(sex=pl.lit("Other"))
    pl.concat([others.head(3), known, others.tail(4)]).write_csv("mixed.csv")
    capsys.readouterr()
    run_here("evaluate", "runs/fedminmax", "later.csv", "--json")
    alone = json.loads(capsys.readouterr().out)
    run_here("evaluate", "runs/fedminmax", "mixed.csv", "--json")
    said = capsys.readouterr()
    mixed = json.loads(said.out)
    assert mixed["test"] == alone["test"]
    assert (alone["skipped"], mixed["skipped"]) == ({}, {"Other": 7})
    assert "mixed.csv: 7 rows are skipped, because training had no row of such groups" in said.err
    run_here("evaluate", "runs/fedminmax", "mixed.csv")
    assert "7 records of 1 group without training records" in capsys.readouterr().out


@pytest.mark.parametrize("target", TASKS)
def test_from_files_to_predictions_and_figures(
    hospitals: Path, capsys: pytest.CaptureFixture[str], target: str
) -> None:
    config = write_config(hospitals, target)
    run_here("train", config)
    said = capsys.readouterr()
    assert "under 50: Female" in said.out
    assert "was worst off" not in said.out
    assert "not in the configuration: not used" in said.err
    run = Path("runs", "fedminmax")
    for folder in (run, run / "baseline"):
        assert {path.name for path in folder.iterdir()} >= FILES
        assert [line["round"] for line in rounds_of(folder)] == list(range(1, 31))
    assert (run / "config.toml").read_bytes() == config.read_bytes()
    census = json.loads((run / "census.json").read_text())
    assert census["sites"] == list(HOSPITALS)
    table = np.array(census["train"]) + np.array(census["test"])
    assert table.sum(axis=1).tolist() == list(HOSPITALS.values())

    run_here("evaluate", run, "--json")
    assert json.loads(capsys.readouterr().out)["test"] == results_of(run)["test"]
    _check_figures_by_hand(run, target, capsys)


def _check_figures_by_hand(run: Path, target: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Compare with plain arithmetic on the predictions' file."""
    later = pl.read_csv("later.csv")
    later.drop(target, "sex").write_csv("features.csv")
    run_here("predict", run, "features.csv")
    answers = pl.read_csv("predictions.csv")
    assert answers["row"].to_list() == list(range(1, len(later) + 1))
    run_here("evaluate", run, "later.csv", "--json")
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["groups"] == ["Female", "Male"]
    metrics = found["test"]["metrics"]
    truth = later[target].to_numpy()
    if target == "cost":
        losses = (answers["predicted"].to_numpy() - truth) ** 2
    else:
        classes = results_of(run)["classes"]
        probabilities = answers.select(f"probability of {name}" for name in classes).to_numpy()
        hot = truth[:, None] == np.array(classes)[None, :]
        losses = ((probabilities - hot) ** 2).sum(axis=1)
        right = answers["predicted"].to_numpy() == truth
        assert metrics["accuracy"]["overall"]["value"] == pytest.approx(right.mean())
    assert metrics["risk"]["overall"]["value"] == pytest.approx(losses.mean(), rel=1e-6)
    for number, group in enumerate(found["groups"]):
        own = losses[later["sex"].to_numpy() == group]
        of_group = metrics["risk"]["by_group"][number]
        assert of_group["rows"] == len(own)
        assert of_group["value"] == pytest.approx(own.mean(), rel=1e-6)
        # Squared errors have no bound: of these few women there is no interval.
        if target == "cost" and group == "Female":
            assert (of_group["low"], of_group["high"]) == (None, None)
        else:
            assert of_group["low"] < of_group["value"] < of_group["high"]


def test_the_worst_group_is_better_off_than_with_the_baseline(hospitals: Path) -> None:
    config = write_config(hospitals, method="rounds = 400", data="held_out = 0.4")
    run_here("train", config, "--out", "run")
    ours, baseline = rounds_of(Path("run"))[-1], rounds_of(Path("run", "baseline"))[-1]
    assert max(ours["risks"]) < max(baseline["risks"]) - 0.02
    assert ours["gradient_evaluations"] == baseline["gradient_evaluations"]


def test_the_change_against_the_baseline_is_that_of_the_rows(
    hospitals: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a test file, the rows are known: differences of losses, and Student's interval."""
    config = write_config(hospitals, data='test = { later = "later.csv" }')
    run_here("train", config)
    said = capsys.readouterr().out
    section = results_of(Path("runs/fedminmax"))["change"]
    assert section["baseline"] == {
        "key": "fedavg",
        "name": "FedAvg",
        "rounds": 30,
        "converged": False,
    }
    later = pl.read_csv("later.csv")
    sick = later["ill"].to_numpy() == "yes"
    ours, theirs = (
        2 * (fedminmax.load_model(f"runs/fedminmax{folder}").predict_proba(later)[:, 1] - sick) ** 2
        for folder in ("", "/baseline")
    )
    change = section["metrics"]["risk"]
    assert change["overall"]["value"] == pytest.approx((ours - theirs).mean(), abs=1e-7)
    for number, sex in enumerate(("Female", "Male")):
        own = (ours - theirs)[later["sex"].to_numpy() == sex]
        of_group = change["by_group"][number]
        assert of_group["rows"] == len(own)
        assert of_group["value"] == pytest.approx(own.mean(), abs=1e-7)
        # The rows and made-up ones: two losses of a row differ by at most 2.
        level = 1.0 - 0.05 / section["comparisons"] / 2.0
        made_up = (norm.ppf(level) / norm.ppf(0.975)) ** 2
        weights = np.append(np.ones(len(own)), made_up)
        for end, far, sign in (("low", -2.0, -1), ("high", 2.0, 1)):
            rows = np.append(own, far)
            mean = np.average(rows, weights=weights)
            variance = (weights * (rows - mean) ** 2).sum() / (weights.sum() - 1.0)
            reach = t.ppf(level, len(own) - 1) * np.sqrt(variance / weights.sum())
            assert of_group[end] == pytest.approx(mean + sign * reach, abs=1e-6)
    assert TOO_FEW in said
    missed = section["metrics"]["false_negative_rate"]["by_group"][1]
    men = sick & (later["sex"].to_numpy() == "Male")
    assert missed["rows"] == men.sum()
    assert missed["value"] == pytest.approx((ours[men] > 0.5).mean() - (theirs[men] > 0.5).mean())
    verdict = results_of(Path("runs/fedminmax"))["verdict"]
    assert verdict["verdict"] == "not finished"
    assert f"Not finished. {verdict['reason']}" in " ".join(said.split())
    right = section["metrics"]["accuracy"]
    assert right["overall"]["value"] == pytest.approx(
        ((ours < 0.5).mean() - (theirs < 0.5).mean()), abs=1e-9
    )
    assert "## Change from the baseline" in Path("runs/fedminmax/model_card.md").read_text()
    assert "change" not in results_of(Path("runs/fedminmax/baseline"))


def test_pooled_rows_train_the_same_model(hospitals: Path) -> None:
    no_test = "held_out = 0"
    by_file = write_config(hospitals, data=no_test, name="files")
    pooled = write_config(hospitals, data=no_test, sites={"all": "all.csv"}, name="pooled")
    one_file = f'{no_test}\nfile = "all.csv"\nsite_column = "hospital"'
    by_column = write_config(hospitals, data=one_file, sites={}, name="column")
    for config in (by_file, pooled, by_column):
        run_here("train", config)
    assert rounds_of(Path("runs/column")) == rounds_of(Path("runs/files"))
    models = {name: fedminmax.load_model(f"runs/{name}") for name in ("files", "pooled", "column")}
    assert models["pooled"].encoding == models["files"].encoding
    expected = models["files"].predict_proba("later.csv")
    assert np.array_equal(models["column"].predict_proba("later.csv"), expected)
    np.testing.assert_allclose(
        models["pooled"].predict_proba("later.csv"), expected, rtol=0, atol=1e-5
    )


def test_without_an_adversary_it_is_least_squares_and_its_own_baseline(hospitals: Path) -> None:
    method = 'rounds = 1000\nadversary_rate = 0\niterate = "last"'
    run_here("train", write_config(hospitals, "cost", data="held_out = 0", method=method))
    own, baseline = (
        fedminmax.load_model(f"runs/fedminmax{folder}").predict("later.csv")
        for folder in ("", "/baseline")
    )
    np.testing.assert_allclose(baseline, own, rtol=1e-4)
    rows, later = pl.read_csv("all.csv"), pl.read_csv("later.csv")
    scaler = StandardScaler().fit(_columns(rows))
    exact = LinearRegression().fit(scaler.transform(_columns(rows)), rows["cost"].to_numpy())
    np.testing.assert_allclose(own, exact.predict(scaler.transform(_columns(later))), rtol=1e-3)


def _columns(frame: pl.DataFrame) -> NDArray[np.float64]:
    return frame.select("age", "dose", "ward").to_dummies("ward").to_numpy()


def test_the_answer_may_be_a_mixture(hospitals: Path) -> None:
    method = 'name = "oracle-minimax"\nfit_rounds = 2\nrounds = 8'
    run_here("train", write_config(hospitals, method=method))
    saved = fedminmax.load_model("runs/fedminmax")
    assert saved.members > 1
    assert isinstance(saved.model, fedminmax.models.Mixture)
    x = saved.encode("later.csv")
    each = [member(x).softmax(dim=1).detach().numpy() for member in saved.model.members]
    np.testing.assert_allclose(saved.predict_proba("later.csv"), np.mean(each, axis=0), atol=1e-6)
    assert f"mixture of {saved.members} models" in Path("runs/fedminmax/model_card.md").read_text()


def test_an_exported_model_predicts_the_same(hospitals: Path) -> None:
    config = write_config(hospitals, "stage", model='kind = "mlp"\nhidden = [6]')
    run_here("train", config)
    run_here("export", "runs/fedminmax", "--onnx", "model.onnx")
    saved = fedminmax.load_model("runs/fedminmax")
    session = onnxruntime.InferenceSession("model.onnx")
    (found,) = session.run(None, {"features": saved.encode("later.csv").numpy()})
    np.testing.assert_allclose(found, saved.predict_proba("later.csv"), atol=1e-5)


def test_a_longer_run_goes_on_from_a_shorter_one(hospitals: Path) -> None:
    config = write_config(hospitals)
    run_here("train", config, "--out", "whole")
    run_here("train", config, "--out", "parts", "--rounds", "12")
    run_here("train", config, "--out", "parts")
    for folder in ("", "baseline"):
        assert results_of(Path("parts", folder)) == results_of(Path("whole", folder))
        assert rounds_of(Path("parts", folder)) == rounds_of(Path("whole", folder))


def test_a_finished_run_keeps_its_results_and_the_configuration_that_they_are_of(
    hospitals: Path,
) -> None:
    config = write_config(hospitals, method="rounds = 6")
    run_here("train", config, "--out", "run")
    names = ("results.json", "config.toml", "census.json", "model.safetensors")
    kept = [Path("run", folder, name) for folder in ("", "baseline") for name in names]
    before = {path: path.read_bytes() for path in kept}
    run_here("train", config, "--out", "run")
    run_here("train", write_config(hospitals, method="rounds = 4"), "--out", "run")
    assert {path: path.read_bytes() for path in kept} == before
    longer = write_config(hospitals, method="rounds = 7")
    run_here("train", longer, "--out", "run")
    assert Path("run/config.toml").read_bytes() == longer.read_bytes()
    # The report says of a file that is missing: repeat the run.
    Path("run/config.toml").unlink()
    run_here("train", longer, "--out", "run")
    assert Path("run/config.toml").read_bytes() == longer.read_bytes()


def test_no_baseline_and_no_test_rows(hospitals: Path, capsys: pytest.CaptureFixture[str]) -> None:
    method = 'rounds = 3\nbaseline = "none"'
    run_here("train", write_config(hospitals, data="held_out = 0", method=method), "--json")
    found = json.loads(capsys.readouterr().out)
    assert found["finished"]
    assert found["baseline"] is None
    assert found["results"]["test"] == {"rows": 0, "min_rows": 50, "metrics": {}}
    assert not Path("runs/fedminmax/baseline").exists()
    assert "no test rows" in Path("runs/fedminmax/model_card.md").read_text()


def test_a_method_is_not_compared_with_itself(hospitals: Path) -> None:
    run_here("train", write_config(hospitals, method='name = "fedavg"\nrounds = 2'))
    assert results_of(Path("runs/fedminmax"))["method"]["key"] == "fedavg"
    assert not Path("runs/fedminmax/baseline").exists()


def test_sites_weights_and_absent_sites(hospitals: Path) -> None:
    config = write_config(hospitals, method='name = "afl"\nparticipation = 0.6')
    run_here("train", config, "--rounds", 4)
    for line in rounds_of(Path("runs/fedminmax")):
        assert line["weights_over"] == "sites"
        assert sum(line["weights"]) == pytest.approx(1.0)
        assert len(line["participants"]) == 2


def test_a_run_says_whether_weights_over_sites_could_have_reached_its_own(
    hospitals: Path,
) -> None:
    """With two groups, sites' mixes are numbers, and what they reach is an interval."""
    run_here("train", write_config(hospitals, method="rounds = 60"))
    census = json.loads(Path("runs/fedminmax/census.json").read_text())
    shares = [women / (women + men) for women, men in census["train"]]
    weights = rounds_of(Path("runs/fedminmax"))[-1]["weights"]
    outside = max(0.0, min(shares) - weights[0], weights[0] - max(shares))
    reach = results_of(Path("runs/fedminmax"))["reach"]
    assert reach["weights"] == weights
    assert reach["distance"] == pytest.approx(2**0.5 * outside, abs=1e-9)
    assert outside > 0.01
    words = "A method that is minimax over sites could not have reached"
    assert words in Path("runs/fedminmax/model_card.md").read_text()
    assert "reach" not in results_of(Path("runs/fedminmax/baseline"))


def test_a_card_in_modest_words(hospitals: Path) -> None:
    run_here("train", write_config(hospitals))
    card = Path("runs/fedminmax/model_card.md").read_text()
    assert "minimax in Brier score over these groups" in card
    assert "| Female |" in card
    assert "## What it is not meant for" in card
    assert "fair" not in card.lower()
    assert "minimax" not in Path("runs/fedminmax/baseline/model_card.md").read_text()


@pytest.mark.slow
def test_a_run_says_that_it_has_not_converged_until_it_has(
    hospitals: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(hospitals, "cost")
    run, card = Path("runs/fedminmax"), Path("runs/fedminmax/model_card.md")
    doubt = "Not finished."
    run_here("train", config)
    said = capsys.readouterr().out
    assert "FedMinMax has not converged after 30 rounds" in said
    assert "FedAvg has not converged after 30 rounds" in said
    for text in (said, card.read_text()):
        assert doubt in text
        assert "a clear gain" not in text
    assert not results_of(run)["convergence"]["converged"]

    run_here("evaluate", run)
    assert "FedMinMax has not converged after 30 rounds" in capsys.readouterr().out

    run_here("train", config, "--rounds", 1000)
    said = capsys.readouterr().out
    assert "FedMinMax (1,000 rounds) and FedAvg (1,000 rounds) have converged." in said
    for text in (said, card.read_text()):
        assert doubt not in text


@pytest.mark.slow
def test_on_adult_the_verdict_on_exact_minimax_names_the_misses_of_white_women(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their accuracy hardly changes, because false alarms fall; nobody clearly gains."""
    monkeypatch.chdir(tmp_path)
    Path("adult.csv").write_text(adult_table())
    names = ("--site-column", "site", "--target", "income", "--groups", "sex,race")
    run_here("init", "adult.csv", *names)
    config = Path("fedminmax.toml")
    text = config.read_text().replace("[method]", "[method]\ntolerance = 0.0")
    config.write_text(text.replace('kind = "additive"', 'kind = "logistic"'))
    capsys.readouterr()
    monkeypatch.setenv("COLUMNS", "70")
    run_here("train", config, "--out", "run")
    out = capsys.readouterr().out
    last = out[out.index("Misclassified per 1,000") :]
    assert max(map(len, last.splitlines())) <= 70
    said = " ".join(out.split())
    verdict = results_of(Path("run"))["verdict"]
    assert verdict["verdict"] == "no benefit: keep the standard model"
    assert verdict["worst_group"]["group"] == "Male / Asian-Pac-Islander"
    harm = verdict["harms"][0]
    assert (harm["group"], harm["kind"], verdict["positive"]) == (
        "Female / White",
        "missed",
        ">50K",
    )
    # The review counted 135 and 196 of 306.
    assert (harm["before"], harm["after"]) == pytest.approx((135 / 306, 196 / 306), abs=0.004)
    assert harm["low"] > 0.1
    card = Path("run/model_card.md").read_text().replace("\\", "")
    for text in (said, card):
        assert "No benefit: keep the standard model." in text
        assert "of 1,000 in “Female / White” that are “>50K”" in text
