"""Attacks on sites that an independent reader of docs/secure_aggregation.md found.

The sites run the honest code; the server is hostile and asks one question at a time. Each attack
succeeded before its repair.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedminmax.config.planned_runs import PlannedRun
from fedminmax.core.errors import InputError
from fedminmax.core.messages import Census, Order, RoundKey
from fedminmax.data.tables.agree import agree_on_encoding
from fedminmax.data.tables.encoding_json import encoding_as_json, encoding_from_json
from fedminmax.network.secure.messages import Ask, to_bytes
from fedminmax.network.server.masked_sites import MaskedSites
from fedminmax.network.server.sites import SentOrder
from fedminmax.network.wire.calls import Endpoint, Question
from fedminmax.network.wire.messages import order_to_bytes
from fedminmax.network.wire.plan import ALL_SITES, NetworkPlan, SecureAggregation, plan_to_bytes
from tests.hostile.hostile_server import AttackedSites
from tests.network.masked_problem import FOUR_SITES, listed_config, masked_plan
from tests.network.private_sites import private_plan

FEDMINMAX = PlannedRun("fedminmax", {"learning_rate": "0.3"}, 2)
# Two classes, and a bias, an age and three wards.
PARAMETERS = 10


@dataclass(frozen=True, eq=False)
class Asking:
    """A server that asks the sites of one job what it likes."""

    sites: AttackedSites
    plan: NetworkPlan
    site: MaskedSites

    @classmethod
    def begin(cls, plan: NetworkPlan, folder: Path, **policy: Any) -> "Asking":
        sites, masked = AttackedSites(folder, **policy), plan.secure_aggregation
        assert masked is not None
        return cls(sites, plan, MaskedSites(plan, masked, sites, folder / plan.run))

    def encode(self, change: Callable[[Any], None] = lambda _encoding: None) -> None:
        """Ask for the summary and send the encoding, changed."""
        summary = self.site.prepare().records[ALL_SITES]
        # Under a privacy guarantee classes are not told.
        strata = {(group, label): 1 for group, _ in summary.strata for label in (0, 1)}
        summary = replace(summary, strata=strata)
        encoding = json.loads(encoding_as_json(agree_on_encoding(self.plan.schema, summary)))
        change(encoding)
        changed = encoding_from_json(json.dumps(encoding), "the attack")
        assert self.site.encode(changed, [ALL_SITES]).failures == {}

    def ask_west(self, order: Order) -> None:
        """Ask west alone about the first round of the first run."""
        ask = to_bytes(Ask(Question(Endpoint.ANSWER, 0, 1), FOUR_SITES))
        payload = {"run": 0, "order": order_to_bytes(order), "secure": ask}
        assert isinstance(self.sites.answering["west"].answer(Endpoint.ANSWER, payload), bytes)

    def step(self, run: int, order: Order) -> Tensor:
        """The total step of a round."""
        method, census = self.plan.runs[run].build(), Census(torch.ones(1, 2), 2)
        limits: Any = None
        sent = SentOrder(run, method, order, census, limits)
        return self.site.ask(sent, [ALL_SITES]).records[ALL_SITES].sums.step


def order_of(parameters: Tensor, number: int = 1) -> Order:
    weights = torch.tensor([0.5, 0.5], dtype=torch.float64)
    return Order(RoundKey(3, number), parameters, weights)


def plan_of(folder: Path, *runs: PlannedRun) -> NetworkPlan:
    return masked_plan(listed_config(folder), FOUR_SITES, *runs)


def without_women(encoding: Any) -> None:
    encoding["groups"].remove(["Female"])


def ages_up_to(most: float) -> Callable[[Any], None]:
    """A larger age is larger than single precision can write."""

    def change(encoding: Any) -> None:
        age = next(own for own in encoding["features"] if own["column"] == "age")
        age["mean"], age["deviation"] = 0.0, most / float(np.finfo(np.float32).max)

    return change


@pytest.mark.parametrize(
    ("change", "failed"), [(without_women, 3), (ages_up_to(75.0), 2)], ids=["group", "age"]
)
def test_no_site_says_that_an_encoding_does_not_suit_its_rows(
    change: Callable[[Any], None], failed: int, tmp_path: Path
) -> None:
    """A refusal would say who has women, or anybody above an age of the server's choice."""
    server = Asking.begin(plan_of(tmp_path, FEDMINMAX), tmp_path)
    with pytest.raises(InputError, match=f"{failed} of 4 sites could not compute"):
        server.encode(change)
    said = {site: text for site, asked, text in server.sites.left if asked == "encode"}
    assert said == dict.fromkeys(FOUR_SITES, b"")


def test_no_site_says_how_long_its_rows_are_under_a_promise_of_privacy(tmp_path: Path) -> None:
    """The sum of squares of a site's ages overflows at a deviation of the server's choice."""

    def tiny_deviation(encoding: Any) -> None:
        age = next(own for own in encoding["features"] if own["column"] == "age")
        age["mean"], age["deviation"] = 0.0, 1e-160

    server = Asking.begin(private_plan(listed_config(tmp_path), sites=FOUR_SITES), tmp_path)
    # The rows are cut off, and the census can be answered.
    server.encode(tiny_deviation)
    assert server.sites.said("encode") == set()


def test_an_answer_to_one_run_is_no_answer_to_another(tmp_path: Path) -> None:
    """Of two runs that differ in their rate, west alone would answer for the first one."""
    slower = replace(FEDMINMAX, options={"learning_rate": "0.29"})
    plan = plan_of(tmp_path, FEDMINMAX, slower)
    order = order_of(torch.zeros(PARAMETERS, dtype=torch.float64))
    steps = []
    for name in ("attacked", "honest"):
        server = Asking.begin(replace(plan, run=name), tmp_path)
        server.encode()
        if name == "attacked":
            server.ask_west(order)
        steps.append(server.step(1, order))
    torch.testing.assert_close(*steps)


def test_what_a_site_keeps_does_not_decide_whether_it_can_answer(tmp_path: Path) -> None:
    """West's own model overflows at a model that west alone was sent: if its rows are so."""
    plan = plan_of(tmp_path, PlannedRun("ditto", {"learning_rate": "0.3"}, 2))
    server = Asking.begin(plan, tmp_path)
    server.encode()
    server.ask_west(order_of(torch.full((PARAMETERS,), 1e308, dtype=torch.float64)))
    order = order_of(torch.zeros(PARAMETERS, dtype=torch.float64), number=2)
    assert torch.isfinite(server.step(0, order)).all()


def test_totals_of_the_same_sites_are_over_all_of_them(tmp_path: Path) -> None:
    """With a lower threshold two helpers of four would do for a total of one honest site."""
    plan = plan_of(tmp_path, FEDMINMAX)
    sites = AttackedSites(tmp_path)
    lower = replace(plan, secure_aggregation=SecureAggregation(3))
    said = sites.answering["west"].answer(Endpoint.PREPARE, {"plan": plan_to_bytes(lower)})
    assert said == (
        "the plan's totals are over the same 4 sites, but 3 would do; give all 4 as the threshold"
    )


def test_a_site_can_insist_on_all_sites_of_its_federation(tmp_path: Path) -> None:
    """Of a plan for three of four sites two helpers would get the third one's answers."""
    fewer = FOUR_SITES[1:]
    plan = replace(
        plan_of(tmp_path, FEDMINMAX), sites=fewer, secure_aggregation=SecureAggregation(3)
    )
    sites = AttackedSites(tmp_path, minimum_sites=4)
    said = sites.answering["west"].answer(Endpoint.PREPARE, {"plan": plan_to_bytes(plan)})
    assert "this site's policy asks for at least 4" in str(said)


@pytest.mark.parametrize("minimum", [9, 11])
def test_a_run_goes_on_with_the_minimum_group_that_it_began_with(
    minimum: int, tmp_path: Path
) -> None:
    """Rows of groups between the two minima would be the difference of two totals."""
    plan = plan_of(tmp_path, FEDMINMAX)
    Asking.begin(plan, tmp_path, suppress_below=10).encode()
    sites = AttackedSites(tmp_path, suppress_below=minimum)
    said = sites.answering["west"].answer(Endpoint.PREPARE, {"plan": plan_to_bytes(plan)})
    assert "began here with another plan or other settings" in str(said)
