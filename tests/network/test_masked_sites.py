"""A server that learns masked totals alone does what one that sees every site does.

What a server of masked sums knows after a restart.
"""

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedminmax.config.planned_runs import PlannedRun
from fedminmax.config.sections import ModelSection
from fedminmax.core.bounds import RowLengths
from fedminmax.core.errors import InputError
from fedminmax.core.messages import Order, Sums
from fedminmax.methods.method import AnyMethod
from fedminmax.network.server.agreement import AGREEMENT_FILE, read_agreement
from fedminmax.network.server.log import run_folder
from fedminmax.network.server.masked_asking import BEGUN_FILE, MASKED_FILE, Kept, MaskedMemory
from fedminmax.network.server.measure import read_measured
from fedminmax.network.server.run import read_members, read_proof, run_plan
from fedminmax.network.site import encoded_site, site
from fedminmax.network.site.journal import read_journal
from fedminmax.network.wire.calls import Endpoint, Question
from fedminmax.network.wire.plan import ALL_SITES
from fedminmax.network.wire.sections import Sections, sections_of_sums
from fedminmax.training.round_record import ROUNDS_FILE, read_rounds
from tests.network.masked_problem import (
    FOUR_SITES,
    FourSites,
    Killed,
    listed_config,
    masked_plan,
)
from tests.network.network_problem import SITES, DirectTransport

# Sums of rows, with curvature, local epochs, two questions in a round.
ONLY_SUMS = ("fedminmax", "fedminmax-fast", "fedavg", "group-scaff-pd")
LOGISTIC = ModelSection("logistic", (), "brier")
FEDMINMAX = PlannedRun("fedminmax", {}, 3)


@pytest.mark.parametrize(
    ("run", "model"),
    [
        *((PlannedRun(key, {}, 3), LOGISTIC) for key in ONLY_SUMS if key != "fedminmax-fast"),
        # With a ridge: in the common direction of dummies and bias rounding would decide.
        (PlannedRun("fedminmax-fast", {}, 3), replace(LOGISTIC, ridge=1e-3)),
        # The plain model, the groups' own models, and the game; its folds are drawn at the sites.
        (
            PlannedRun("fedminmax-fast", {"objective": "excess", "keep_share": "0.3"}, 20),
            ModelSection("logistic", (), "cross_entropy", ridge=0.01),
        ),
        # Rounds of the linear model come first, then those of the network.
        (
            PlannedRun("fedminmax-fast", {"linear_start": "true", "keep_share": "0.5"}, 9),
            ModelSection("mlp", (9,), "cross_entropy"),
        ),
    ],
)
def test_masked_totals_lead_to_the_same_models(
    run: PlannedRun, model: ModelSection, tmp_path: Path
) -> None:
    masked = masked_plan(listed_config(tmp_path), SITES, run)
    masked = replace(masked, validation=0.2, model=model)
    plain = replace(masked, run="plain", secure_aggregation=None)
    assert run_plan(plain, DirectTransport(tmp_path), tmp_path / "plain").error is None
    assert run_plan(masked, FourSites(tmp_path), tmp_path / "masked").error is None
    folders = [run_folder(tmp_path / name, plain, 0) for name in ("plain", "masked")]
    torch.testing.assert_close(*map(read_members, folders), rtol=1e-9, atol=1e-9)
    before, now = (read_rounds(own / ROUNDS_FILE) for own in folders)
    for one, other in zip(before, now, strict=True):
        assert other.sites.took_part == SITES
        for name in ("risks", "weights", "validation_risks"):
            assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-9)
        assert one.gradient_evaluations == other.gradient_evaluations
    agreed = read_agreement(tmp_path / "masked" / AGREEMENT_FILE)
    assert agreed is not None
    assert list(agreed.counts) == [ALL_SITES]
    by_site, in_all = (read_measured(tmp_path / name) for name in ("plain", "masked"))
    torch.testing.assert_close(by_site.sums.products, in_all.sums.products, rtol=1e-9, atol=1e-9)
    assert torch.equal(by_site.rows.sum(dim=0, keepdim=True), in_all.rows)


def test_the_learning_rate_and_the_proof_come_from_masked_sums_too(tmp_path: Path) -> None:
    config = listed_config(tmp_path, 'loss = "cross_entropy"\nridge = 0.1')
    run = replace(FEDMINMAX, options={"learning_rate": "safe"})
    masked = replace(masked_plan(config, SITES, run), certify=True)
    plain = replace(masked, run="plain", secure_aggregation=None)
    assert run_plan(plain, DirectTransport(tmp_path), tmp_path / "plain").error is None
    assert run_plan(masked, FourSites(tmp_path), tmp_path / "masked").error is None
    rates, gaps = [], []
    for name in ("plain", "masked"):
        agreed, proof = (
            read_agreement(tmp_path / name / AGREEMENT_FILE),
            read_proof(run_folder(tmp_path / name, plain, 0)),
        )
        assert agreed is not None
        assert proof is not None
        assert proof.certificate is not None
        rates.append(agreed.learning_rate)
        gaps.append(proof.certificate.gap)
    assert rates[0] == rates[1] is not None
    assert gaps[1] == pytest.approx(gaps[0], rel=1e-6)


@pytest.mark.parametrize(
    ("question", "number"),
    [("unmask", 2), ("answer", 2), ("unmask", 4)],
)
def test_a_server_that_was_killed_goes_on_to_the_same_model_bit_for_bit(
    question: str, number: int, tmp_path: Path
) -> None:
    config = listed_config(tmp_path)
    plan = masked_plan(config, SITES, FEDMINMAX)
    other = replace(plan, run="undisturbed")
    assert run_plan(other, FourSites(tmp_path), tmp_path / "undisturbed").error is None
    with suppress(Killed):
        run_plan(plan, FourSites(tmp_path, killed_at=(question, number)), tmp_path / "run")
        pytest.fail("nobody was killed")
    # All keys are new, and so are the masks.
    assert run_plan(plan, FourSites(tmp_path), tmp_path / "run").error is None
    members = [read_members(run_folder(tmp_path / n, plan, 0)) for n in ("run", "undisturbed")]
    assert torch.equal(*members)
    sums = [read_measured(tmp_path / name).sums.products for name in ("run", "undisturbed")]
    assert torch.equal(*sums)


def test_a_site_that_goes_away_is_not_in_its_round_and_in_the_next_one_again(
    tmp_path: Path,
) -> None:
    config = listed_config(tmp_path)
    plan = masked_plan(config, FOUR_SITES, FEDMINMAX, same_sites=False)
    transport = FourSites(tmp_path, gone={("east", "answer"): 2})
    assert run_plan(plan, transport, tmp_path / "run").error is None
    rounds = read_rounds(run_folder(tmp_path / "run", plan, 0) / ROUNDS_FILE)
    assert [entry.sites.took_part for entry in rounds] == [FOUR_SITES, SITES, FOUR_SITES]
    assert "east did not answer in time" in rounds[1].sites.refused["east"]
    # As if nobody had ever been masked.
    bare = replace(plan, run="plain", secure_aggregation=None)
    silent = FourSites(tmp_path, gone={("east", "answer"): 2})
    assert run_plan(bare, silent, tmp_path / "plain").error is None
    found, right = (read_members(run_folder(tmp_path / n, plan, 0)) for n in ("run", "plain"))
    torch.testing.assert_close(found, right, rtol=1e-9, atol=1e-9)


def test_a_site_that_goes_away_while_masks_are_taken_off_is_still_in_the_total(
    tmp_path: Path,
) -> None:
    config = listed_config(tmp_path)
    plan = masked_plan(config, FOUR_SITES, FEDMINMAX, same_sites=False)
    transport = FourSites(tmp_path, gone={("east", "unmask"): 4})
    assert run_plan(plan, transport, tmp_path / "run").error is None
    assert (
        run_plan(replace(plan, run="other"), FourSites(tmp_path), tmp_path / "undisturbed").error
        is None
    )
    members = [read_members(run_folder(tmp_path / n, plan, 0)) for n in ("run", "undisturbed")]
    assert torch.equal(*members)


def test_too_few_sites_stop_the_run_and_say_so(tmp_path: Path) -> None:
    plan = masked_plan(listed_config(tmp_path), SITES, FEDMINMAX)
    transport = FourSites(tmp_path, gone={("west", "answer"): 2})
    error = run_plan(plan, transport, tmp_path / "run").error
    assert error is not None
    assert "2 sites are left for a masked total over at least 3" in error
    assert "west did not answer in time" in error


def test_a_site_sends_nothing_that_it_would_not_believe_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that sees single replies would refuse it; here nobody else could."""
    plan = masked_plan(listed_config(tmp_path), FOUR_SITES, FEDMINMAX)
    transport = FourSites(tmp_path)
    honest, east = encoded_site.reply_to, FOUR_SITES.index("east")

    def too_large(
        method: AnyMethod[Any], order: Order, own: encoded_site.EncodedSite, state: Path | None
    ) -> Sums:
        reply = honest(method, order, own, state)
        added = 1e3 if own.data.number == east else 0.0
        return replace(reply, group_loss=reply.group_loss + added)

    monkeypatch.setattr(site, "reply_to", too_large)
    error = run_plan(plan, transport, tmp_path / "run").error
    assert error is not None
    assert error.startswith("1 of 4 sites could not compute an answer, and masks hide which")
    assert "east" not in error
    # The reason stays in the log of the site itself.
    failed = {
        name: [entry.reason for entry in read_journal(tmp_path / f"{name}-kept") if entry.reason]
        for name in FOUR_SITES
    }
    assert [name for name, reasons in failed.items() if reasons] == ["east"]
    assert "this site sent a loss" in failed["east"][0]


def test_a_site_with_another_table_than_before_refuses_to_go_on(tmp_path: Path) -> None:
    plan = masked_plan(listed_config(tmp_path), FOUR_SITES, FEDMINMAX)
    with suppress(Killed):
        run_plan(plan, FourSites(tmp_path, killed_at=("answer", 2)), tmp_path / "run")
    table = tmp_path / "east.csv"
    table.write_text("\n".join(table.read_text().splitlines()[:-10]) + "\n")
    error = run_plan(plan, FourSites(tmp_path), tmp_path / "run").error
    assert error is not None
    assert "3 of at least 4 sites sent keys" in error
    assert "another table than when this run began" in error


def test_no_message_to_the_server_has_the_numbers_of_a_site(tmp_path: Path) -> None:
    """Of two runs over the same tables the uploads have no word in common; totals are equal."""
    config = listed_config(tmp_path)
    uploads = []
    for run in ("one", "two"):
        transport = FourSites(tmp_path)
        plan = replace(masked_plan(config, SITES, FEDMINMAX), run=run)
        assert run_plan(plan, transport, tmp_path / run).error is None
        uploads.append([m for _, q, m in transport.sent if q == "answer" and isinstance(m, bytes)])
        kept = json.loads((tmp_path / run / AGREEMENT_FILE).read_text())
        assert list(kept["counts"]) == [ALL_SITES]
    words = [{m[i : i + 8] for m in own for i in range(0, len(m) - 7, 8)} for own in uploads]
    assert len(words[0]) > 100
    assert not words[0] & words[1]


def test_a_reversed_step_under_masks_stops_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody sees whose it is, but the losses of all do not change as the total step says."""
    honest, east = sections_of_sums, FOUR_SITES.index("east")
    own: list[int] = []

    def look(
        _method: AnyMethod[Any],
        _order: Order,
        _reply: Sums,
        encoded: encoded_site.EncodedSite,
        _lengths: RowLengths,
    ) -> None:
        own.append(encoded.data.number)

    def reversed_step(reply: Sums) -> Sections:
        lies = own.pop() == east
        return honest(replace(reply, step=reply.step * -10.0) if lies else reply)

    run = replace(FEDMINMAX, options={"learning_rate": "safe"}, rounds=4)
    plan = masked_plan(listed_config(tmp_path), FOUR_SITES, run)
    assert run_plan(plan, FourSites(tmp_path), tmp_path / "honest").error is None
    monkeypatch.setattr(site, "check_before_masking", look)
    monkeypatch.setattr(site, "sections_of_sums", reversed_step)
    lied = replace(plan, run="lied")
    error = run_plan(lied, FourSites(tmp_path), tmp_path / "lied").error
    assert error is not None
    assert "a step that does not fit how its own losses changed" in error
    assert "masked sums do not show whose numbers are false" in error


FIRST = Question(Endpoint.ANSWER, round=1)


def test_a_restart_forgets_nothing(tmp_path: Path) -> None:
    before = MaskedMemory(tmp_path)
    assert before.kept == Kept()
    before.keep(Kept(SITES, "summary"))
    before.note_begun(FIRST, SITES)
    before.note_begun(FIRST, SITES[:2])
    before.note_begun(FIRST, SITES[:2])
    for later in (before, MaskedMemory(tmp_path)):
        assert later.kept == Kept(SITES, "summary")
        assert later.begun(FIRST) == SITES[:2]
        assert later.begun(replace(FIRST, phase=1)) == ()
    # The same total once more needs no further line.
    assert len((tmp_path / BEGUN_FILE).read_text().splitlines()) == 2


def test_a_line_that_a_crash_cut_off_is_not_part_of_the_next_one(tmp_path: Path) -> None:
    MaskedMemory(tmp_path).note_begun(FIRST, SITES)
    with (tmp_path / BEGUN_FILE).open("a") as file:
        file.write('{"question": {"end')
    later = replace(FIRST, round=2)
    MaskedMemory(tmp_path).note_begun(later, SITES[1:])
    again = MaskedMemory(tmp_path)
    assert (again.begun(FIRST), again.begun(later)) == (SITES, SITES[1:])


def test_a_damaged_file_is_said_to_be_so(tmp_path: Path) -> None:
    (tmp_path / MASKED_FILE).write_text("{")
    with pytest.raises(InputError, match=r"masked.json is damaged; start a new run"):
        MaskedMemory(tmp_path)
