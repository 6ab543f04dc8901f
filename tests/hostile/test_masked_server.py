"""A server that does what it likes learns totals over all sites of agreed functions, or nothing.

The sites run the honest code with the default policy; the server is hostile.
"""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedminmax.config.planned_runs import PlannedRun
from fedminmax.network.secure.messages import Ask, from_bytes, to_bytes
from fedminmax.network.server.masked_asking import MASKED_FILE
from fedminmax.network.server.run import run_plan
from fedminmax.network.wire.messages import order_from_bytes, order_to_bytes
from fedminmax.network.wire.plan import NetworkPlan, SecureAggregation
from tests.hostile.hostile_server import Attack, AttackedSites, changed_json, run_attack
from tests.network.masked_problem import FOUR_SITES, listed_config, masked_plan

pytestmark = pytest.mark.slow
RUN = PlannedRun("fedminmax", {"learning_rate": "safe"}, 2)
THREE = FOUR_SITES[1:]


@pytest.fixture
def plan(tmp_path: Path) -> NetworkPlan:
    return masked_plan(listed_config(tmp_path), FOUR_SITES, RUN)


def tells_west(question: str, name: str, change: Callable[[Any], None]) -> Attack:
    """West alone is told something else."""

    def attack(site: str, asked: str, payload: dict[str, Any]) -> None:
        if (site, asked) == ("west", question):
            changed_json(payload, name, change)

    return attack


def other_group_numbers(encoding: Any) -> None:
    encoding["groups"].reverse()


def other_mean(encoding: Any) -> None:
    quantity = next(own for own in encoding["features"] if "mean" in own)
    quantity["mean"] += 1000.0


def more_rows(sizes: Any) -> None:
    sizes["rows"] += 10


def other_rate(site: str, question: str, payload: dict[str, Any]) -> None:
    """A learning rate for west and as good as none for the others: the total is west's step."""
    if question == "take_rate" and site != "west":
        payload["rate"] = b"1e-30"


def other_order(site: str, question: str, payload: dict[str, Any]) -> None:
    if question == "answer" and site == "west":
        order = order_from_bytes(payload["order"], torch.zeros(10, dtype=torch.float64), "it")
        payload["order"] = order_to_bytes(replace(order, parameters=order.parameters + 1.0))


@pytest.mark.parametrize(
    "attack",
    [
        tells_west("encode", "encoding", other_group_numbers),
        tells_west("encode", "encoding", other_mean),
        tells_west("encode", "sizes", more_rows),
        other_rate,
        other_order,
    ],
    ids=["groups", "mean", "sizes", "rate", "order"],
)
def test_a_site_that_is_told_something_else_is_in_no_total(
    attack: Attack, plan: NetworkPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It knows the totals of summaries and counts, so that it asks about models at once.
    elsewhere, here = tmp_path / "elsewhere", tmp_path / "run"
    elsewhere.mkdir()
    listed_config(elsewhere)
    assert run_plan(plan, AttackedSites(elsewhere), elsewhere / "run").error is None
    here.mkdir()
    shutil.copy(elsewhere / "run" / MASKED_FILE, here)
    sites = AttackedSites(tmp_path, attack)
    error = run_attack(plan, sites, here, monkeypatch)
    assert error is not None
    assert any("'west' did not sign the question" in text for text in sites.said("unmask"))
    # Every site refused and has it in its own log: not one seed was told for this question.
    for site in FOUR_SITES:
        assert any("did not sign the question" in reason for reason in sites.logged(site))


def test_another_plan_for_one_site_ends_before_any_answer(
    plan: NetworkPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even of what the plan's own digest leaves out."""

    def longer(content: Any) -> None:
        content["site_rules"]["reply_timeout"] += 1.0

    sites = AttackedSites(tmp_path, tells_west("prepare", "plan", longer))
    error = run_attack(plan, sites, tmp_path / "run", monkeypatch)
    assert error is not None
    assert any("received another plan" in text for text in sites.said("set_roster"))
    assert not [asked for _, asked, _ in sites.left if asked == "summarise"]


@pytest.mark.parametrize("weight", [1e10, 1e30, 1e60, 1e200])
def test_no_site_says_that_its_numbers_are_too_large(
    weight: float, plan: NetworkPlan, tmp_path: Path
) -> None:
    """With weights of the server's choice such a word would tell how large one site's step is."""

    def heavier(_site: str, question: str, payload: dict[str, Any]) -> None:
        if question == "answer":
            order = order_from_bytes(payload["order"], torch.zeros(10, dtype=torch.float32), "it")
            payload["order"] = order_to_bytes(replace(order, weights=order.weights * weight))

    single = replace(plan, precision=type(plan.precision)("float32"))
    sites = AttackedSites(tmp_path, heavier)
    run_plan(single, sites, tmp_path / "run")
    answers = [message for _, asked, message in sites.left if asked == "answer"]
    assert len(answers) >= len(FOUR_SITES)
    assert {type(message) for message in answers} == {bytes}
    assert len({len(message) for message in answers}) == 1


def test_a_lie_about_sizes_is_answered_without_a_name(plan: NetworkPlan, tmp_path: Path) -> None:
    """Sizes of one row: the larger sites' numbers do not fit, and nobody hears whose."""

    def one_row(_site: str, question: str, payload: dict[str, Any]) -> None:
        if question == "encode":
            payload["sizes"] = b'{"rows":0,"length":0,"target_length":0}'

    sites = AttackedSites(tmp_path, one_row)
    run_plan(plan, sites, tmp_path / "run")
    said = [text for _, asked, text in sites.left if asked != "unmask" and isinstance(text, str)]
    assert said == []


def test_runs_over_other_subsets_are_refused_from_the_summary_on(
    plan: NetworkPlan, tmp_path: Path
) -> None:
    """Four runs over three of four sites would give every single site's counts."""
    assert run_plan(plan, AttackedSites(tmp_path), tmp_path / "all").error is None
    for left_out in FOUR_SITES:
        few = tuple(site for site in FOUR_SITES if site != left_out)
        fewer = replace(
            plan, run=f"without-{left_out}", sites=few, secure_aggregation=SecureAggregation(3)
        )
        sites = AttackedSites(tmp_path)
        error = run_plan(fewer, sites, tmp_path / fewer.run).error
        assert error is not None
        assert "would tell about fewer than 3 sites" in error
        assert sites.said("summarise")
        assert not [asked for _, asked, _ in sites.left if asked == "unmask"]
        assert any("would tell about" in reason for reason in sites.logged(few[0]))


def test_subsets_that_were_first_keep_the_whole_out(plan: NetworkPlan, tmp_path: Path) -> None:
    three = replace(plan, run="three", sites=THREE, secure_aggregation=SecureAggregation(3))
    assert run_plan(three, AttackedSites(tmp_path), tmp_path / "three").error is None
    error = run_plan(plan, AttackedSites(tmp_path), tmp_path / "all").error
    assert error is not None
    assert "would tell about fewer than 4 sites" in error
    # The same sites may train again.
    again = replace(three, run="again")
    assert run_plan(again, AttackedSites(tmp_path), tmp_path / "again").error is None


def test_a_summary_is_a_run(plan: NetworkPlan, tmp_path: Path) -> None:
    """A server that stops after every summary gets no more of them than runs."""
    assert run_plan(plan, AttackedSites(tmp_path, max_runs=1), tmp_path / "run").error is None
    for number in range(3):
        sites = AttackedSites(tmp_path, max_runs=1)
        further = replace(plan, run=f"further-{number}")
        error = run_plan(further, sites, tmp_path / further.run).error
        assert error is not None
        assert "this site allows 1 run on the same table" in error
        assert {asked for _, asked, text in sites.left if isinstance(text, bytes)} <= {"keys"}
    # The run that it had may go on.
    assert run_plan(plan, AttackedSites(tmp_path, max_runs=1), tmp_path / "again").error is None


def test_a_plan_for_few_of_many_sites_is_refused(plan: NetworkPlan, tmp_path: Path) -> None:
    """Of a federation of four, two colluding sites and a third are not enough for a total."""
    few = replace(plan, sites=THREE[:2], secure_aggregation=SecureAggregation(2))
    sites = AttackedSites(tmp_path)
    assert run_plan(few, sites, tmp_path / "two").error is not None
    assert any("at least 3 are needed" in text for text in sites.said("prepare"))


def test_a_plan_with_changing_sites_needs_the_sites_own_consent(
    plan: NetworkPlan, tmp_path: Path
) -> None:
    loose = replace(plan, secure_aggregation=SecureAggregation(3, same_sites=False))
    sites = AttackedSites(tmp_path)
    assert run_plan(loose, sites, tmp_path / "run").error is not None
    assert any("totals may be over different sites" in text for text in sites.said("prepare"))


@pytest.mark.parametrize(
    ("question", "name", "change"),
    [
        ("encode", "encoding", other_group_numbers),
        ("encode", "encoding", other_mean),
        ("encode", "sizes", more_rows),
    ],
)
def test_after_a_restart_a_run_has_the_encoding_that_it_had(
    question: str, name: str, change: Callable[[Any], None], plan: NetworkPlan, tmp_path: Path
) -> None:
    def everybody(_site: str, asked: str, payload: dict[str, Any]) -> None:
        if asked == question:
            changed_json(payload, name, change)

    assert run_plan(plan, AttackedSites(tmp_path), tmp_path / "run").error is None
    sites = AttackedSites(tmp_path, everybody)
    assert run_plan(plan, sites, tmp_path / "again").error is not None
    assert sites.said("encode") == {
        "this site answered 1 different question about 'encode' and allows no more"
    }


def test_after_a_restart_a_run_has_the_rate_that_it_had(plan: NetworkPlan, tmp_path: Path) -> None:
    def halved(_site: str, asked: str, payload: dict[str, Any]) -> None:
        if asked == "take_rate":
            payload["rate"] = b"0.001"

    assert run_plan(plan, AttackedSites(tmp_path), tmp_path / "run").error is None
    sites = AttackedSites(tmp_path, halved)
    assert run_plan(plan, sites, tmp_path / "again").error is not None
    assert any("about 'take_rate' and allows no more" in text for text in sites.said("take_rate"))


def test_a_round_is_answered_for_one_order_for_ever(plan: NetworkPlan, tmp_path: Path) -> None:
    def moved(_site: str, asked: str, payload: dict[str, Any]) -> None:
        if asked == "answer":
            order = order_from_bytes(payload["order"], torch.zeros(10, dtype=torch.float64), "it")
            payload["order"] = order_to_bytes(replace(order, parameters=order.parameters + 1.0))

    assert run_plan(plan, AttackedSites(tmp_path), tmp_path / "run").error is None
    for _ in range(3):
        sites = AttackedSites(tmp_path, moved)
        assert run_plan(plan, sites, tmp_path / "again").error is not None
        assert any("different question about round 1" in text for text in sites.said("answer"))
        assert not [m for _, asked, m in sites.left if asked == "answer" and isinstance(m, bytes)]


def test_a_total_over_fewer_sites_than_the_plan_says(plan: NetworkPlan, tmp_path: Path) -> None:
    def three_of_four(_site: str, asked: str, payload: dict[str, Any]) -> None:
        if asked == "summarise":
            ask = from_bytes(payload["secure"], Ask, "it")
            payload["secure"] = to_bytes(replace(ask, sites=ask.sites[:3]))

    sites = AttackedSites(tmp_path, three_of_four)
    assert run_plan(plan, sites, tmp_path / "run").error is not None
    assert any("asks 3 sites, at least 4 were agreed" in text for text in sites.said("summarise"))
