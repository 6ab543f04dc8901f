"""Predictions that sites have, measured between sites, are those of one process on all files."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from fedminmax.config.read import read_config
from fedminmax.network.site.policy import check_plan
from fedminmax.network.site.preview import agree_to, check_site
from fedminmax.network.site.settings import SiteSettings
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.plan import plan_from_bytes, plan_of_config, plan_to_bytes
from fedminmax.network.wire.site_rules import SiteRules
from tests.cli.command import complaint, run_here
from tests.cli.hospitals import draw_patients, write_config
from tests.complaints import complaint_of
from tests.network.masked_problem import LISTED, FourSites
from tests.network.network_problem import SITES
from tests.runs.network_runs import run_between_sites

AUDIT = {
    "ill": '[audit]\npredictions = ["new"]\nagainst = ["old"]\n',
    "stage": '[audit]\npredictions = ["low", "mid", "high"]\n',
    "cost": '[audit]\npredictions = ["new"]\nagainst = ["old"]\n',
}


def with_predictions(frame: pl.DataFrame, task: str, seed: int) -> pl.DataFrame:
    random = np.random.default_rng(seed)
    noise = [random.normal(size=len(frame)) for _ in range(3)]
    if task == "stage":
        odds = np.exp(np.stack(noise, axis=1))
        shares = odds / odds.sum(axis=1, keepdims=True)
        names = ("low", "mid", "high")
        return frame.with_columns(pl.Series(own, shares[:, n]) for n, own in enumerate(names))
    if task == "cost":
        made = {"new": 0.2, "old": 0.4}
        cost = frame["cost"].to_numpy()
        return frame.with_columns(
            pl.Series(own, cost + 200 * size * noise[number])
            for number, (own, size) in enumerate(made.items())
        )
    need = (frame["age"].to_numpy() - 55) / 20
    sign = np.where(frame["sex"].to_numpy() == "Female", -1, 1)
    needs = {"new": need + sign * frame["dose"].to_numpy(), "old": need + frame["dose"].to_numpy()}
    return frame.with_columns(pl.Series(own, 1 / (1 + np.exp(-x))) for own, x in needs.items())


def write_task(folder: Path, task: str, rows: int = 400) -> Path:
    for seed, name in enumerate((*SITES, "east")):
        frame = with_predictions(draw_patients(rows, seed), task, seed)
        frame.write_csv(folder / f"{name}.csv")
    config = write_config(folder, task)
    config.write_text(config.read_text().replace("[groups]", LISTED) + AUDIT[task])
    return config


def results_of(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return content


def assert_same(found: object, expected: object, path: str = "") -> None:
    if isinstance(expected, dict):
        assert isinstance(found, dict)
        assert found.keys() == expected.keys(), path
        for name, own in expected.items():
            assert_same(found[name], own, f"{path}/{name}")
    elif isinstance(expected, list):
        assert isinstance(found, list)
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert_same(one, other, f"{path}/{number}")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-9), path
    else:
        assert found == expected, path


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("task", AUDIT)
def test_between_sites_it_is_as_in_one_process(task: str, masked: bool, tmp_path: Path) -> None:  # noqa: FBT001
    config = write_task(tmp_path, task)
    masks = f"[federation]\nsecure_aggregation = {str(masked).lower()}\n"
    config.write_text(config.read_text() + masks)
    transport = FourSites(tmp_path)
    run = run_between_sites(config, tmp_path / "apart", transport)
    run.collect()
    models = read_config(config).audit
    files = [f"{tmp_path / name}.csv" for name in SITES]
    # There classes are in the order of their names.
    columns = ",".join(sorted(models[0]))
    words = ["--target", task, "--groups", "sex", "--predictions", columns]
    words += ["--against", models[1][0]] if len(models) > 1 else []
    run_here("audit", *files, *words, "--out", tmp_path / "together")
    found, expected = results_of(tmp_path / "apart"), results_of(tmp_path / "together")
    parts = ["test", *(["change", "verdict"] if len(models) > 1 else [])]
    for part in parts:
        assert_same(found[part], expected[part], part)
    assert ("secure_aggregation" in found) is masked
    if masked:
        assert "site_parity" not in found
    else:
        assert found.get("site_parity") == expected.get("site_parity")
    run_here("report", tmp_path / "apart", "--out", tmp_path / "report.html")
    # Nobody was asked for a round: the plan, the groups, the encoding and the sums.
    asked = {question for _, question in transport.asked}
    assert "measure" in asked
    assert not asked & {"answer", "validate", "certify", "curvature", "smooth"}


def test_a_site_sees_what_it_would_answer_and_refuses_another_audit(tmp_path: Path) -> None:
    config = read_config(write_task(tmp_path, "ill"))
    settings = agree_to(config, SiteSettings(tmp_path / "north.csv", minimum_sites=1), "north")
    assert set(settings.columns or ()) == {"ill", "sex", "new", "old"}
    told = " ".join(check_site(config, settings, "north").leaves)
    assert "predictions in 'new' and of 'old'" in told
    assert "round" not in told
    plan = plan_of_config(config, "run", SITES, SiteRules())
    check_plan(plan, settings, SITES)
    other = tmp_path / "other.toml"
    other.write_text((tmp_path / "fedminmax.toml").read_text().replace('"old"', '"dose"'))
    asked = plan_of_config(read_config(other), "run", SITES, SiteRules())
    with pytest.raises(RefusedError, match="not among those that this site agreed to"):
        check_plan(asked, settings, SITES)


def test_bad_predictions_end_it_and_name_no_record(tmp_path: Path) -> None:
    config = write_task(tmp_path, "ill")
    frame = pl.read_csv(tmp_path / "south.csv")
    frame.with_columns(new=pl.col("new") * 3).write_csv(tmp_path / "south.csv")
    with pytest.raises(AssertionError) as raised:
        run_between_sites(config, tmp_path / "apart", FourSites(tmp_path))
    assert "predicts values" not in str(raised.value)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (('["new"]', '["sex"]'), "target or a sensitive attribute"),
        (('["new"]', '["new", "old", "age"]'), "3 columns of predictions are named"),
        (('["new"]', "[]"), "predictions"),
    ],
)
def test_a_configuration_that_cannot_be_audited(
    change: tuple[str, str], reason: str, tmp_path: Path
) -> None:
    config = write_task(tmp_path, "ill", rows=40)
    config.write_text(config.read_text().replace(*change))
    assert reason in complaint_of(lambda: read_config(config))


def test_a_plan_that_trains_besides_is_refused(tmp_path: Path) -> None:
    config = read_config(write_task(tmp_path, "ill", rows=40))
    plan = plan_of_config(config, "run", SITES, SiteRules())
    settings = SiteSettings(tmp_path / "north.csv", minimum_sites=1)
    came = plan_from_bytes(plan_to_bytes(plan), "it")
    assert came.audit == (("new",), ("old",))
    assert came.runs == ()
    check_plan(came, settings, SITES)
    for wrong in ({"audit": ()}, {"held_out": 0.2}, {"audit": (("age",),)}):
        with pytest.raises(RefusedError, match="audit"):
            check_plan(replace(plan, **wrong), settings, SITES)


def test_it_is_not_trained(tmp_path: Path) -> None:
    write_task(tmp_path, "ill", rows=40)
    assert "federation audit" in complaint("train", "fedminmax.toml", cwd=tmp_path)
