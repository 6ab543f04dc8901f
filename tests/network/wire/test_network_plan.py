"""The plan: comes back as it was, and a plan that could do harm is refused by the site."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedminmax.config.planned_runs import PlannedRun
from fedminmax.config.read import read_config
from fedminmax.core.errors import InputError
from fedminmax.core.iterates import Iterate
from fedminmax.network.server.run import run_lock
from fedminmax.network.site.settings import (
    SiteSettings,
    SmallGroups,
    read_site_settings,
    site_settings_text,
)
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.plan import NetworkPlan, plan_from_bytes, plan_to_bytes
from tests.network.network_problem import plan_of, write_tables


@pytest.fixture
def plan(tmp_path: Path) -> NetworkPlan:
    run = PlannedRun("qfedavg", {"q": "2"}, 7, participation=0.5, iterate=Iterate.LAST)
    return plan_of(read_config(write_tables(tmp_path)), [run])


def test_a_plan_comes_back_as_it_was_and_holds_no_path(plan: NetworkPlan, tmp_path: Path) -> None:
    message = plan_to_bytes(plan)
    assert plan_from_bytes(message, "the server") == plan
    assert str(tmp_path).encode() not in message
    assert b".csv" not in message


@pytest.mark.parametrize("name", ["../../etc", "a/b", "", ".", "x" * 65, "a b"])
def test_a_run_cannot_be_named_like_a_way_out_of_its_folder(name: str, plan: NetworkPlan) -> None:
    with pytest.raises(RefusedError, match="the server sent a run's name"):
        plan_from_bytes(plan_to_bytes(replace(plan, run=name)), "the server")


def test_an_unknown_method_and_an_unknown_loss_are_refused(plan: NetworkPlan) -> None:
    other = replace(plan, runs=(PlannedRun("os.system", {}, 1),))
    with pytest.raises(RefusedError, match=r"'os\.system', which is not installed"):
        plan_from_bytes(plan_to_bytes(other), "the server")
    other = replace(plan, model=replace(plan.model, loss="pickle"))  # type: ignore[arg-type]
    with pytest.raises(RefusedError, match="the server sent no plan"):
        plan_from_bytes(plan_to_bytes(other), "the server")


@pytest.mark.parametrize("message", [b"", b"{}", b"[]", b"\xff", "text", None])
def test_what_is_no_plan_is_refused(message: object) -> None:
    with pytest.raises(RefusedError, match=r"the server (sent|sent no plan)"):
        plan_from_bytes(message, "the server")


def test_a_sites_settings_come_back_with_the_path_beside_them(tmp_path: Path) -> None:
    settings = SiteSettings(
        Path("hospital.csv"),
        columns=("age", "sex"),
        plan="0123",
        max_rounds=7,
        suppress_below=10,
        small_groups=SmallGroups.MERGE,
    )
    path = tmp_path / "fedminmax.json"
    path.write_text(site_settings_text(settings))
    assert read_site_settings(path) == replace(settings, data=tmp_path / "hospital.csv")


@pytest.mark.parametrize(
    ("wrong", "where"),
    [
        ({"data": 3}, "data"),
        ({"data": "hospital.csv", "minimum_gruop": 10}, "minimum_gruop"),
        ({"data": "hospital.csv", "suppress_below": 0}, "suppress_below"),
        ({"data": "hospital.csv", "small_groups": "hide"}, "small_groups"),
    ],
)
def test_a_mistake_in_a_sites_settings_is_named(
    wrong: dict[str, object], where: str, tmp_path: Path
) -> None:
    path = tmp_path / "fedminmax.json"
    path.write_text(json.dumps(wrong))
    with pytest.raises(InputError, match=rf"not valid \({where}\)"):
        read_site_settings(path)


def test_a_site_without_settings_is_told_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist; run 'fedminmax site check' first"):
        read_site_settings(tmp_path / "fedminmax.json")


def test_a_folder_has_one_writer(tmp_path: Path) -> None:
    refused = pytest.raises(InputError, match="another job writes to")
    with run_lock(tmp_path), refused, run_lock(tmp_path, 0.0):
        pass
    with run_lock(tmp_path, 0.0):
        pass
