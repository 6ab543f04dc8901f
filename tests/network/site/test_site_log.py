"""A site's own log: it has every message that left, as the other end saw it, and every refusal."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedminmax.config.planned_runs import PlannedRun
from fedminmax.network.flare.site import FlareSite
from fedminmax.network.server.run import run_plan
from fedminmax.network.site.journal import (
    JOURNAL_FILE,
    Entry,
    Event,
    read_journal,
)
from fedminmax.network.site.policy import planned_questions
from fedminmax.network.site.site import FAILED, Site
from fedminmax.network.wire.calls import ARGUMENTS, Endpoint, Question
from fedminmax.network.wire.codec import RefusedError, write_vectors
from fedminmax.network.wire.plan import NetworkPlan, plan_to_bytes
from tests.network.logged_sites import LoggedSites
from tests.network.masked_problem import FOUR_SITES, listed_config, masked_plan
from tests.network.site.test_site_limits import asked_site

RUNS = (PlannedRun("fedminmax-fast", {}, 2), PlannedRun("fedavg", {"learning_rate": "0.1"}, 2))
OPEN_RATE = PlannedRun("fedminmax", {"learning_rate": "safe"}, 2)
TWICE_A_ROUND = PlannedRun("group-drfa", {"learning_rate": "0.1", "batch_size": "10"}, 2)


def plan_in(folder: Path, *runs: PlannedRun, masked: bool) -> NetworkPlan:
    plan = masked_plan(listed_config(folder), FOUR_SITES, *(runs or RUNS))
    return plan if masked else replace(plan, secure_aggregation=None)


@pytest.mark.parametrize("masked", [False, True])
def test_the_log_is_what_the_transport_saw(tmp_path: Path, *, masked: bool) -> None:
    plan, sites = plan_in(tmp_path, masked=masked), LoggedSites(tmp_path)
    assert run_plan(plan, sites, tmp_path / "runs").error is None
    for site in FOUR_SITES:
        left = sites.left(site)
        logged = [(entry.endpoint.value, entry.bytes, entry.digest) for entry in left]
        assert logged == sites.seen(site)
        assert {entry.run for entry in left} == {plan.run}
        with_numbers = {entry.endpoint for entry in left if entry.masked is not None}
        assert {Endpoint.ANSWER, Endpoint.MEASURE} <= with_numbers
        assert {entry.masked for entry in left} == ({None, True} if masked else {False})
        rounds = [(e.question.run, e.round) for e in left if e.endpoint is Endpoint.ANSWER]
        assert rounds == [(0, 1), (0, 2), (1, 1), (1, 2)]
        about = {e.question.endpoint for e in left if e.endpoint is Endpoint.UNMASK}
        every = {Endpoint.SUMMARISE, Endpoint.COUNT_ROWS, Endpoint.ANSWER, Endpoint.MEASURE}
        assert about == (every if masked else set())


@pytest.mark.parametrize(
    ("runs", "masked"),
    [(RUNS, False), (RUNS, True), ((OPEN_RATE,), False), ((TWICE_A_ROUND,), False)],
)
def test_the_planned_number_is_what_an_undisturbed_run_asks(
    runs: tuple[PlannedRun, ...], tmp_path: Path, *, masked: bool
) -> None:
    plan, sites = plan_in(tmp_path, *runs, masked=masked), LoggedSites(tmp_path)
    assert run_plan(plan, sites, tmp_path / "runs").error is None
    assert len(sites.seen("north")) == planned_questions(plan)


def test_more_questions_than_twice_the_plan_are_refused_by_number(tmp_path: Path) -> None:
    """The plan has three rounds, the plan itself, the encoding and the scores: six questions."""
    asked = asked_site(tmp_path)
    for number in (1, 2, 3):
        for model in (0.0, 1.0, 2.0):
            asked.ask(number, model)
    asked.measure(1)
    entries = read_journal(tmp_path / "kept")
    assert len({(entry.question, entry.digest) for entry in entries}) == 12
    journal = asked.site.journal
    # The same question again is not another one.
    asked.ask(3, 2.0)
    with pytest.raises(RefusedError, match="at most 12 different questions in a run of this plan"):
        journal.allow(Question(Endpoint.MEASURE), b"a third model")
    with pytest.raises(RefusedError, match="at most 12 different questions"):
        journal.check_call(Endpoint.UNMASK, Question(Endpoint.ANSWER))
    # Another run has its own questions.
    asked_site(tmp_path, name="other").ask(1)


def test_a_refusal_is_logged_with_the_reason_that_left(tmp_path: Path) -> None:
    plan, sites = plan_in(tmp_path, masked=False), LoggedSites(tmp_path)
    with pytest.raises(RefusedError):
        sites.answer("north", "answer", {"run": 0, "order": b"no order"})
    sites.answer("north", "prepare", {"plan": plan_to_bytes(plan)})
    with pytest.raises(RefusedError):
        sites.answer("north", "keys", {})
    left = sites.left("north")
    assert [(e.endpoint.value, e.bytes, e.digest) for e in left] == sites.seen("north")
    assert [entry.event for entry in left] == [Event.REFUSED, Event.SENT, Event.REFUSED]
    said = [message.decode() for _, question, message in sites.saw if question != "prepare"]
    assert [entry.reason for entry in left if entry.reason] == said
    assert "asks for masks, which its plan does not have" in said[1]


def test_what_a_failure_says_of_a_row_is_not_in_the_log(tmp_path: Path) -> None:
    plan, sites = plan_in(tmp_path, masked=False), LoggedSites(tmp_path)
    table = tmp_path / "north.csv"
    table.write_text(table.read_text() + "Jane Doe,Female,a,no\n")
    with pytest.raises(RefusedError, match="its work failed"):
        sites.answer("north", "prepare", {"plan": plan_to_bytes(plan)})
    (entry,) = sites.left("north")
    assert (entry.event, entry.reason, entry.run) == (Event.REFUSED, FAILED, plan.run)
    assert "Jane" not in (tmp_path / "north-kept" / JOURNAL_FILE).read_text()


def test_nothing_leaves_that_cannot_be_logged(tmp_path: Path) -> None:
    plan, sites = plan_in(tmp_path, masked=False), LoggedSites(tmp_path)
    log = tmp_path / "north-kept" / JOURNAL_FILE
    log.parent.mkdir()
    log.write_text("not a line of the log\n")
    with pytest.raises(RefusedError, match="journal is damaged"):
        sites.answer("north", "prepare", {"plan": plan_to_bytes(plan)})
    log.unlink()
    log.mkdir()
    with pytest.raises(RefusedError, match="its work failed"):
        sites.answer("north", "prepare", {"plan": plan_to_bytes(plan)})


def test_a_line_that_a_crash_cut_off_is_no_message(tmp_path: Path) -> None:
    plan, sites = plan_in(tmp_path, masked=False), LoggedSites(tmp_path)
    sites.answer("north", "prepare", {"plan": plan_to_bytes(plan)})
    log = tmp_path / "north-kept" / JOURNAL_FILE
    whole = log.read_text()
    log.write_text(whole + whole[:40])
    assert len(sites.left("north")) == 1
    sites.answer("north", "prepare", {"plan": plan_to_bytes(plan)})
    assert [entry.event for entry in sites.left("north")] == [Event.SENT] * 2


def test_lines_are_read_as_they_were_written() -> None:
    question = Question(Endpoint.ANSWER, 1, round=2, phase=1, attempt=3)
    entry = Entry(
        "2026-11-01T08:00:00Z",
        Event.SENT,
        "r",
        "p",
        "t",
        question,
        "d",
        call=Endpoint.UNMASK,
        bytes=7,
        masked=True,
    )
    refused = replace(entry, event=Event.REFUSED, masked=None, reason="no")
    unmasked = replace(entry, event=Event.UNMASKED, session="s", sites=("north", "south"))
    for each in (entry, refused, unmasked):
        assert Entry.from_json(json.loads(json.dumps(each.as_json()))) == each


def test_every_function_of_a_site_is_one_that_is_logged() -> None:
    """Whether a site is there is asked every few seconds, and the answer is empty."""
    published = {name for name in vars(FlareSite) if not name.startswith("_")}
    assert published == {"present", "call"}
    assert ARGUMENTS.keys() == set(Endpoint) - {Endpoint.PRESENT}
    assert all(callable(getattr(Site, endpoint)) for endpoint in ARGUMENTS)


@pytest.mark.parametrize(
    ("endpoint", "payload"),
    [
        (Endpoint.ANSWER, {"run": 0, "order": b"", "ask": b"{}"}),
        (Endpoint.ANSWER, {"run": 0, "order": b"", "self": 1}),
        (Endpoint.UNMASK, {"asked": b"{}"}),
        (Endpoint.KEYS, {"plan": b"{}"}),
        (Endpoint.KEYS, {1: b"{}"}),
        (Endpoint.KEYS, [b"{}"]),
        (Endpoint.KEYS, None),
    ],
)
def test_other_arguments_than_those_of_the_list_are_refused(
    endpoint: Endpoint, payload: Any, tmp_path: Path
) -> None:
    plan, sites = plan_in(tmp_path, masked=True), LoggedSites(tmp_path)
    sites.answer("north", "prepare", {"plan": plan_to_bytes(plan)})
    said = sites.answering["north"].answer(endpoint, payload)
    assert said == f"the server sent other arguments than '{endpoint}' has"
    assert sites.left("north")[-1].event is Event.REFUSED


@pytest.mark.parametrize("run", [-1, 2**60, "0", None])
def test_numbers_of_a_refused_call_do_not_damage_the_journal(run: object, tmp_path: Path) -> None:
    plan, sites = plan_in(tmp_path, masked=False), LoggedSites(tmp_path)
    parameters = torch.zeros(3)
    order = write_vectors(
        {
            "numbers": torch.tensor([0, -5, 2**60]),
            "parameters": parameters,
            "weights": parameters.double(),
        }
    )
    with pytest.raises(RefusedError):
        sites.answer("north", "answer", {"run": run, "order": order})
    sites.answer("north", "prepare", {"plan": plan_to_bytes(plan)})
    assert [entry.event for entry in sites.left("north")] == [Event.REFUSED, Event.SENT]
