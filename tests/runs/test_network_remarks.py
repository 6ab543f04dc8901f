"""What results say of a run between sites: who was missing, and which group it did not see."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from fedminmax.config.planned_runs import PlannedRun
from fedminmax.config.read import read_config
from fedminmax.findings.records import SiteOfRun
from fedminmax.network.server.agree import agree
from fedminmax.network.server.agreement import AGREEMENT_FILE
from fedminmax.network.server.sites import PlainSites
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.plan import NetworkPlan
from fedminmax.runs.network import remarks_on, sites_of
from tests.cli.command import run_here
from tests.cli.hospitals import results_of, rounds_of
from tests.network.network_problem import AT_ONCE, DirectTransport, plan_of, write_tables
from tests.runs.network_runs import run_between_sites
from tests.training.disturbed_simulation import SilentTransport
from tests.training.made_up_rounds import made_up_round

GROUPS = ("Female", "Male")
AWAY = {"south": "south is not connected"}
LATE = {"south": "south did not answer in time"}
ROUNDS = [
    made_up_round(1),
    made_up_round(2, refused=AWAY),
    made_up_round(3, risks=(None, 0.25), refused=AWAY),
    made_up_round(4, risks=(0.5, None), refused=LATE),
    made_up_round(5, risks=(0.5, None)),
]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write_tables(tmp_path)


@pytest.fixture
def plan(config: Path) -> NetworkPlan:
    return plan_of(read_config(config), [PlannedRun("fedminmax", {}, 5)])


def test_rounds_and_reasons_are_counted_by_site(plan: NetworkPlan) -> None:
    assert sites_of(ROUNDS, plan) == (
        SiteOfRun(site="north", rounds=5, refused={}),
        SiteOfRun(site="south", rounds=2, refused={AWAY["south"]: 2, LATE["south"]: 1}),
        SiteOfRun(site="west", rounds=5, refused={}),
    )


def test_groups_that_nobody_told_of_are_warned_of(plan: NetworkPlan, tmp_path: Path) -> None:
    women, men = remarks_on(ROUNDS, plan, tmp_path, GROUPS)[1]
    assert "'Female' was not seen in 1 of 5 rounds, from round 3 on" in women
    assert "still missing" not in women
    assert "'Male' was not seen in 2 of 5 rounds, from round 4 on" in men
    assert men.endswith("it was still missing in the last round")
    assert remarks_on(ROUNDS[:2], plan, tmp_path, GROUPS)[1] == []


def test_who_is_absent_by_design_is_not_remarked_on(plan: NetworkPlan, tmp_path: Path) -> None:
    assert "south took part in 2 of 5 rounds" in remarks_on(ROUNDS, plan, tmp_path, GROUPS)[0]
    drawn = replace(plan, runs=(replace(plan.runs[0], participation=0.5),))
    (note,) = remarks_on(ROUNDS, drawn, tmp_path, GROUPS)[0]
    assert note.startswith("no secure aggregation")


def test_a_site_that_tells_of_nearly_all_rows_is_remarked_on(
    plan: NetworkPlan, tmp_path: Path
) -> None:
    agree(plan, PlainSites(plan, DirectTransport(tmp_path)), tmp_path)
    path = tmp_path / AGREEMENT_FILE
    content = json.loads(path.read_text())
    words = "north has 2,000 of all 2,060 training rows: the model is nearly its own"
    assert words not in remarks_on(ROUNDS[:1], plan, tmp_path, GROUPS)[0]
    path.write_text(json.dumps(content | {"counts": content["counts"] | {"north": [900, 1100]}}))
    assert words in remarks_on(ROUNDS[:1], plan, tmp_path, GROUPS)[0]


class WestAlone(DirectTransport):
    """North and south, the only sites with women, answer in the first round alone."""

    def answer(self, site: str, endpoint: str, payload: Mapping[str, object]) -> object:
        rounds = [asked for asked, _ in self.calls if asked == "answer"]
        if endpoint == "answer" and site != "west" and len(rounds) > 1:
            raise RefusedError(f"{site} is not connected")
        return super().answer(site, endpoint, payload)


def test_results_warn_of_a_group_that_the_run_lost(config: Path, tmp_path: Path) -> None:
    alone = WestAlone(tmp_path, minimum_sites=1)
    patience = replace(AT_ONCE, minimum_sites=1)
    run = run_between_sites(config, tmp_path / "run", alone, patience)
    run.collect()
    results = results_of(run.folder)
    assert [site["rounds"] for site in results["sites"]] == [1, 1, 3]
    assert results["sites"][0]["refused"] == {"north is not connected": 2}
    (warning,) = results["warnings"]
    assert "group 'Female' was not seen in 2 of 3 rounds, from round 2 on" in warning
    assert "it was still missing in the last round" in warning
    assert "north took part in 1 of 3 rounds" in results["notes"]
    assert [line["risks"][0] is None for line in rounds_of(run.folder)] == [False, True, True]
    assert [line["participants"] for line in rounds_of(run.folder)] == [[0, 1, 2], [2], [2]]
    run_here("report", run.folder, "--out", tmp_path / "report.html")


@pytest.mark.parametrize("endpoint", ["prepare", "measure"])
def test_results_say_whose_held_out_rows_are_missing(
    endpoint: str, config: Path, tmp_path: Path
) -> None:
    transport = SilentTransport(tmp_path, endpoint, ["south"])
    run = run_between_sites(config, tmp_path / "run", transport)
    run.collect()
    results = results_of(run.folder)
    expected = "south is not connected: its held-out rows are not in the results"
    assert expected in results["warnings"]
    census = json.loads((run.folder / "census.json").read_text())
    assert census["test"][1] == [0, 0]
    assert sum(map(sum, census["test"])) == results["test"]["rows"] > 0
