"""What the sites agree on outlives the process: the same encoding, and nobody who comes late."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedminmax.config.planned_runs import PlannedRun
from fedminmax.config.read import TableConfig
from fedminmax.data.tables.load import load_federated_tables
from fedminmax.network.server import agree as agree_module
from fedminmax.network.server.agree import agree
from fedminmax.network.server.agreement import AGREEMENT_FILE, read_agreement
from fedminmax.network.server.log import run_folder
from fedminmax.network.server.run import run_plan
from fedminmax.network.server.sites import PlainSites
from fedminmax.network.wire.messages import sections_to_bytes
from fedminmax.network.wire.plan import NetworkPlan
from fedminmax.network.wire.site_rules import SiteRules
from fedminmax.training.round_record import ROUNDS_FILE, read_rounds
from tests.complaints import complaint_of
from tests.network.network_problem import AT_ONCE, SITES, DirectTransport, plan_of
from tests.training.disturbed_simulation import SilentTransport


def job(config: TableConfig, rounds: int = 2, site_rules: SiteRules = AT_ONCE) -> NetworkPlan:
    return plan_of(config, [PlannedRun("fedminmax", {}, rounds)], site_rules)


def test_counts_and_encoding_are_those_of_the_pooled_tables(
    config: TableConfig, tmp_path: Path
) -> None:
    agreement = agree(
        job(config), PlainSites(job(config), DirectTransport(tmp_path)), tmp_path / "run"
    )
    tables = load_federated_tables(config)
    expected = torch.stack([part.examples.group.bincount(minlength=2) for part in tables.train])
    assert torch.equal(agreement.census.counts, expected)
    assert agreement.encoding == tables.encoding
    kept = read_agreement(tmp_path / "run" / AGREEMENT_FILE)
    assert kept is not None
    assert kept.encoding == tables.encoding
    assert kept.learning_rate is None
    assert torch.equal(kept.rows(SITES), expected)
    assert kept.rows(["north", "east"])[1].tolist() == [0, 0]


def test_a_site_that_comes_late_is_left_out_of_a_run_that_began(
    config: TableConfig, tmp_path: Path
) -> None:
    """Its rows would change the encoding and the sizes of the groups, and so what is minimised."""
    plan = job(config)
    first = run_plan(plan, SilentTransport(tmp_path, "prepare", ["south"]), tmp_path / "run")
    assert first.refused == {"south": "south is not connected"}
    before = (tmp_path / "run" / AGREEMENT_FILE).read_bytes()
    longer = job(config, rounds=4)
    second = run_plan(longer, DirectTransport(tmp_path), tmp_path / "run")
    assert second.refused == {"south": "south was absent when this run began; skipped"}
    rounds = read_rounds(run_folder(tmp_path / "run", longer, 0) / ROUNDS_FILE)
    assert [entry.sites.took_part for entry in rounds] == [("north", "west")] * 4
    assert (tmp_path / "run" / AGREEMENT_FILE).read_bytes() == before


def test_a_site_that_is_away_later_keeps_its_place(config: TableConfig, tmp_path: Path) -> None:
    plan = job(config)
    whole = agree(plan, PlainSites(plan, DirectTransport(tmp_path)), tmp_path / "run").census.counts
    later = agree(
        plan, PlainSites(plan, SilentTransport(tmp_path, "prepare", ["south"])), tmp_path / "run"
    )
    assert torch.equal(later.census.counts, whole)
    assert list(later.refused) == ["south"]


def test_a_site_that_counts_other_rows_than_it_told_is_refused(
    config: TableConfig, tmp_path: Path
) -> None:
    class Miscounting(DirectTransport):
        def answer(self, site: str, endpoint: str, payload: Mapping[str, object]) -> object:
            message = super().answer(site, endpoint, payload)
            other = sections_to_bytes({"counts": torch.tensor([1, 1])}, 0.0)
            return other if (site, endpoint) == ("south", "encode") else message

    agreement = agree(job(config), PlainSites(job(config), Miscounting(tmp_path)), tmp_path / "run")
    reason = "south counts other groups than its summary had; refused"
    assert agreement.refused == {"south": reason}
    assert agreement.census.counts[1].tolist() == [0, 0]


class Telling(DirectTransport):
    """South changes what it tells before the first round."""

    def __init__(self, folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
        super().__init__(folder)
        self._change = change

    def answer(self, site: str, endpoint: str, payload: Mapping[str, object]) -> object:
        message = super().answer(site, endpoint, payload)
        if (site, endpoint) != ("south", "prepare"):
            return message
        assert isinstance(message, bytes)
        content = json.loads(message)
        self._change(content)
        return json.dumps(content).encode()


def times(factor: int) -> Callable[[dict[str, Any]], None]:
    """Every row so many times."""

    def change(content: dict[str, Any]) -> None:
        content["rows"] *= factor
        for sums in content["quantities"].values():
            sums[0] *= factor
            for place in (1, 2):
                digits, exponent = sums[place].split("/")
                sums[place] = f"{int(digits, 16) * factor:x}/{exponent}"
        for name, counts in content["categories"].items():
            content["categories"][name] = [count * factor for count in counts]
        for stratum in content["strata"]:
            stratum[2] *= factor

    return change


def invent_a_group(content: dict[str, Any]) -> None:
    """One of the rows is of a group that nobody else has."""
    content["strata"][0][2] -= 1
    content["strata"].append([["Invented"], 0, 1])


def test_more_rows_than_anybody_has_are_refused_by_name(
    config: TableConfig, tmp_path: Path
) -> None:
    agreement = agree(
        job(config), PlainSites(job(config), Telling(tmp_path, times(10**10))), tmp_path / "run"
    )
    assert "south reports 360,000,000,000 training rows" in agreement.refused["south"]
    assert agreement.census.counts[1].tolist() == [0, 0]


def test_an_invented_group_of_one_row_stops_the_run_before_it_begins(
    config: TableConfig, tmp_path: Path
) -> None:
    outcome = run_plan(job(config), Telling(tmp_path, invent_a_group), tmp_path / "run")
    assert outcome.error is not None
    assert "group 'Invented' has 1 training rows in all, at south, fewer than 5" in outcome.error


def test_a_group_of_refused_sites_alone_stops_the_run(config: TableConfig, tmp_path: Path) -> None:
    plan = job(config, site_rules=replace(AT_ONCE, abort_below=1))
    outcome = run_plan(plan, Telling(tmp_path, invent_a_group), tmp_path / "run")
    assert outcome.error is not None
    assert "no remaining site has group 'Invented' (south counts other groups" in outcome.error


def test_an_error_that_nobody_expected_is_told_in_one_line(
    config: TableConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overflow(*_: object, **__: object) -> None:
        raise OverflowError("int too large to convert to float")

    monkeypatch.setattr(agree_module, "agree_on_encoding", overflow)
    outcome = run_plan(job(config), DirectTransport(tmp_path), tmp_path / "run")
    assert outcome.error is not None
    assert "(OverflowError: int too large to convert to float)" in outcome.error


def test_too_few_sites_at_the_start_are_a_mistake_in_one_line(
    config: TableConfig, tmp_path: Path
) -> None:
    plan = job(config, site_rules=replace(AT_ONCE, minimum_sites=3))
    outcome = run_plan(plan, SilentTransport(tmp_path, "prepare", ["west"]), tmp_path / "run")
    assert outcome.error == (
        "2 of 3 sites can take part, at least 3 are needed (west is not connected)"
    )


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", '{"encoding": {}, "counts": {}, "learning_rate": null}']
)
def test_a_damaged_agreement_is_a_mistake_in_one_line(content: str, tmp_path: Path) -> None:
    path = tmp_path / AGREEMENT_FILE
    path.write_text(content)
    assert AGREEMENT_FILE in complaint_of(lambda: read_agreement(path))


DAMAGED: dict[str, tuple[tuple[str | int, ...], object]] = {
    "a negative count": (("counts", "north", 0), -1),
    "a count beyond all numbers": (("counts", "north", 0), 10**30),
    "an infinite count": (("counts", "north", 0), 1e999),
    "too few counts": (("counts", "north"), []),
    "a rate that is no word": (("learning_rate",), 0.5),
    "a rate that is no number": (("learning_rate",), "fast"),
    "a feature of another schema": (("encoding", "features", 0, "column"), "weight"),
    "a deviation of 0": (("encoding", "features", 0, "deviation"), 0.0),
    "a group of two columns": (("encoding", "groups", 0), ["Female", "old"]),
    "a group twice": (("encoding", "groups", 0), ["Male"]),
    "a foreign category": (("encoding", "features", 1, "categories"), ["z"]),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_an_agreement_that_cannot_have_been_made_is_refused(
    damage: str, config: TableConfig, tmp_path: Path
) -> None:
    plan = job(config)
    agree(plan, PlainSites(plan, DirectTransport(tmp_path)), tmp_path / "run")
    path = tmp_path / "run" / AGREEMENT_FILE
    content = json.loads(path.read_text())
    (*way, last), value = DAMAGED[damage]
    place = content
    for step in way:
        place = place[step]
    place[last] = value
    path.write_text(json.dumps(content))
    assert complaint_of(lambda: read_agreement(path)) == f"{path} is damaged; start a new run"
