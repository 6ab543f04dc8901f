"""Validation rows at sites: the same choice as the simulation, and losses that can be true.

Every method through bytes and back equals the simulation: same rows, same numbers.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load

from fedminmax.advice.cost import message_bytes
from fedminmax.config.planned_runs import PlannedRun
from fedminmax.config.read import read_config
from fedminmax.core.bounds import row_limits
from fedminmax.core.iterates import Iterate
from fedminmax.core.linear_structure import linear_structure_of
from fedminmax.core.losses import brier_loss
from fedminmax.core.messages import Census
from fedminmax.core.validation import LossSums
from fedminmax.methods.catalogue import CARDS
from fedminmax.network.server.agreement import AGREEMENT_FILE, read_agreement
from fedminmax.network.server.log import run_folder
from fedminmax.network.server.run import read_answer, read_members, run_plan
from fedminmax.network.site.policy import read_rows
from fedminmax.network.site.settings import SiteSettings
from fedminmax.network.wire.checks import check_validation
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.messages import sections_to_bytes
from fedminmax.network.wire.plan import NetworkPlan, Precision, digest_of, plan_of_config, task_of
from fedminmax.network.wire.sections import losses_of, sections_of_losses
from fedminmax.network.wire.site_rules import SiteRules
from fedminmax.training.round_record import ROUNDS_FILE, read_rounds
from fedminmax.training.train import Round
from tests.complaints import complaint_of
from tests.network.network_problem import (
    SITES,
    DirectTransport,
    plan_of,
    simulate,
    simulated_members,
    write_tables,
)

SHARE = 0.3
RUN = PlannedRun("fedminmax", {"learning_rate": "3.0"}, 40, iterate=Iterate.BEST, patience=4)


class Open(DirectTransport):
    """Sites that tell of groups of any size, so that they set aside what the simulation does."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        for site in self.sites.values():
            site._settings = replace(site._settings, suppress_below=1)


@pytest.fixture
def plan(tmp_path: Path) -> NetworkPlan:
    path = write_tables(tmp_path)
    path.write_text(path.read_text().replace("seed = 3", f"seed = 3\nvalidation = {SHARE}"))
    return replace(plan_of(read_config(path), [RUN]), validation=SHARE)


def simulated(folder: Path, plan: NetworkPlan) -> Round[Any]:
    *_, done = simulate(folder, plan, 0, fused=True)
    return done


def test_the_network_chooses_the_round_that_the_simulation_chooses(
    plan: NetworkPlan, tmp_path: Path
) -> None:
    expected = simulated(tmp_path, plan)
    assert expected.chosen is not None
    assert expected.number < RUN.rounds  # patience ended it
    outcome = run_plan(plan, Open(tmp_path), tmp_path / "server")
    assert outcome.error is None
    own = run_folder(tmp_path / "server", plan, 0)
    told = read_answer(own).facts
    assert told.chosen is not None
    assert told.latest is not None
    assert told.iterate is Iterate.BEST
    best = expected.progress.iterates.best
    assert (told.chosen.round, told.latest.round) == (best.chosen.round, best.latest.round)
    assert told.chosen.risk == pytest.approx(best.chosen.risk, abs=1e-9)
    assert told.chosen.standard_error == pytest.approx(best.chosen.standard_error, abs=1e-9)
    torch.testing.assert_close(read_members(own), expected.members, atol=1e-9, rtol=0)
    last = expected.parameters(Iterate.LAST)
    torch.testing.assert_close(read_answer(own).alternative[0], last, atol=1e-9, rtol=0)
    lines = read_rounds(own / ROUNDS_FILE)
    assert len(lines) == expected.number
    risks = expected.validation_risks.tolist()
    assert lines[-1].validation_risks == pytest.approx(risks, abs=1e-9)


def test_a_run_that_went_on_chooses_as_if_it_had_not_stopped(
    plan: NetworkPlan, tmp_path: Path
) -> None:
    expected = simulated(tmp_path, plan)
    short = replace(plan, runs=(replace(RUN, rounds=3),))
    run_plan(short, Open(tmp_path), tmp_path / "server")
    run_plan(plan, Open(tmp_path), tmp_path / "server")
    told = read_answer(run_folder(tmp_path / "server", plan, 0)).facts
    assert told.chosen is not None
    assert expected.chosen is not None
    assert told.chosen.round == expected.chosen.round
    assert told.chosen.risk == pytest.approx(expected.chosen.risk, abs=1e-9)


class Spoiled(Open):
    """West tells validation losses below 0."""

    def answer(self, site: str, endpoint: str, payload: Mapping[str, object]) -> object:
        came = super().answer(site, endpoint, payload)
        if endpoint == "validate" and site == "west":
            assert isinstance(came, bytes)
            losses = losses_of(load(came))
            changed = sections_of_losses(replace(losses, loss=-losses.loss - 1.0))
            return sections_to_bytes(changed, 0.0)
        return came


def test_a_site_with_impossible_losses_is_left_out_of_the_last_measurement(
    plan: NetworkPlan, tmp_path: Path
) -> None:
    outcome = run_plan(plan, Spoiled(tmp_path), tmp_path / "server")
    assert outcome.error is None
    own = run_folder(tmp_path / "server", plan, 0)
    refused = read_rounds(own / ROUNDS_FILE)[-1].sites.refused
    assert "validation rows, which they cannot have" in refused["west"]


@pytest.mark.parametrize(
    ("loss", "squares", "count"),
    [(-0.5, 0.3, 10), (30.0, 100.0, 10), (4.0, 1.0, 10), (4.0, 17.0, 10), (4.0, 2.0, 9)],
)
def test_losses_that_no_rows_have(loss: float, squares: float, count: int) -> None:
    limits = row_limits([torch.nn.Linear(1, 2)], torch.zeros(4), brier_loss)
    told = LossSums(
        torch.tensor([loss], dtype=torch.float64),
        torch.tensor([squares], dtype=torch.float64),
        torch.tensor([count]),
    )
    right = LossSums(torch.tensor([4.0]).double(), torch.tensor([2.0]).double(), torch.tensor([10]))
    check_validation(right, torch.tensor([10]), limits, "north")
    complaint_of(lambda: check_validation(told, torch.tensor([10]), limits, "north"))


def test_a_site_sets_nothing_aside_of_a_group_with_too_few_rows(
    plan: NetworkPlan, tmp_path: Path
) -> None:
    settings = SiteSettings(tmp_path / "north.csv", suppress_below=1)
    free = read_rows(plan, settings, "north")
    assert free.validation is not None
    counts = np.bincount(free.validation.group)
    assert counts.min() > 1
    least = int(counts.min()) + 1
    held = read_rows(plan, replace(settings, suppress_below=least), "north")
    assert held.validation is not None
    assert np.bincount(held.validation.group, minlength=2).tolist() == [
        int(count) if count >= least else 0 for count in counts
    ]
    assert len(held.train) + len(held.validation) == len(free.train) + len(free.validation)


def test_a_site_that_agreed_to_a_plan_refuses_another_share(plan: NetworkPlan) -> None:
    assert digest_of(plan) != digest_of(replace(plan, validation=0.1))
    more_patient = replace(plan, runs=(replace(RUN, patience=9),))
    assert digest_of(plan) == digest_of(more_patient)


@pytest.mark.parametrize("asked", [True, False])
def test_patience_that_was_asked_for_needs_validation_rows(
    plan: NetworkPlan, tmp_path: Path, *, asked: bool
) -> None:
    """Of a hundredth of their rows no site tells: no round can be seen to be better."""
    runs = (replace(RUN, rounds=2, needs_patience=asked),)
    few = replace(plan, validation=0.01, runs=runs)
    outcome = run_plan(few, DirectTransport(tmp_path), tmp_path / "server")
    rounds = run_folder(tmp_path / "server", few, 0) / ROUNDS_FILE
    if asked:
        assert outcome.error == (
            "patience = 4, but there are no validation rows to detect an improvement; set "
            "validation, or drop patience"
        )
        assert not rounds.exists() or not read_rounds(rounds)
    else:
        assert outcome.error is None
        assert len(read_rounds(rounds)) == 2
    assert digest_of(few) == digest_of(replace(few, runs=(replace(RUN, rounds=2),)))


@pytest.mark.parametrize("words", ["", "patience = 7"])
def test_a_plan_says_whether_patience_was_asked_for(tmp_path: Path, words: str) -> None:
    path = write_tables(tmp_path)
    text = path.read_text().replace('kind = "logistic"', 'kind = "mlp"\nhidden = [4]')
    path.write_text(text.replace('name = "fedminmax"\nrounds = 3\nlearning_rate = 0.3', words))
    made = plan_of_config(read_config(path), "test", SITES, SiteRules())
    assert [(run.patience, run.needs_patience) for run in made.runs] == [
        (7, True) if words else (30, False)
    ]


def test_validation_is_not_told_without_a_plan_for_it(plan: NetworkPlan, tmp_path: Path) -> None:
    transport = Open(tmp_path)
    bare = replace(plan, validation=0.0, runs=(replace(RUN, patience=None, rounds=2),))
    assert run_plan(bare, transport, tmp_path / "server").error is None
    with pytest.raises(RefusedError, match="validation"):
        transport.sites[SITES[0]].validate(0, b"")


ROUNDS = 3


@pytest.mark.parametrize("key", CARDS)
def test_three_rounds_equal_the_simulation(key: str, tmp_path: Path) -> None:
    config = read_config(write_tables(tmp_path))
    plan = plan_of(config, [PlannedRun(key, {}, ROUNDS)])
    outcome = run_plan(plan, DirectTransport(tmp_path), tmp_path / "run")
    assert outcome.error is None
    folder = run_folder(tmp_path / "run", plan, 0)
    # The plain path does the same arithmetic in the same order; the fused one rounds otherwise.
    torch.testing.assert_close(
        read_members(folder), simulated_members(tmp_path, plan, 0, fused=False), rtol=0, atol=0
    )
    rounds = read_rounds(folder / ROUNDS_FILE)
    assert [entry.round for entry in rounds] == [1, 2, 3]
    assert all(entry.sites.took_part == SITES and not entry.sites.refused for entry in rounds)
    # What a round costs was known before, to the byte.
    agreed = read_agreement(tmp_path / "run" / AGREEMENT_FILE)
    assert agreed is not None
    task = task_of(plan, agreed.encoding)
    census = Census(agreed.rows(SITES), 2, linear=linear_structure_of(task))
    row = torch.zeros(len(agreed.encoding.names))
    said = message_bytes(plan.runs[0].build(), task, census, row)
    sizes = [(entry.sites.bytes_out, entry.sites.bytes_in) for entry in rounds]
    assert sizes[0] == (said.down, said.up)
    # FedSRCVaR asks for second derivatives in its first round alone.
    later = max(sizes[1:]) if plan.runs[0].method == "fedsrcvar" else sizes[0]
    assert later <= sizes[0]
    assert set(sizes[1:]) == {later}


def test_sums_in_double_precision_stay_so_where_the_model_is_in_single(tmp_path: Path) -> None:
    """Gradients by group are summed in float64, whatever the model's own precision."""
    config = read_config(write_tables(tmp_path))
    plan = plan_of(config, [PlannedRun("fedminmax-fast", {}, ROUNDS)])
    plan = replace(plan, precision=Precision.FLOAT32)
    assert run_plan(plan, DirectTransport(tmp_path), tmp_path / "run").error is None
    found = read_members(run_folder(tmp_path / "run", plan, 0))
    assert torch.equal(found, simulated_members(tmp_path, plan, 0, fused=False))


@pytest.mark.parametrize("key", ["fedminmax", "afl", "fedminmax-fast"])
def test_the_fused_simulation_differs_by_rounding_alone(key: str, tmp_path: Path) -> None:
    config = read_config(write_tables(tmp_path))
    plan = plan_of(config, [PlannedRun(key, {}, ROUNDS)])
    run_plan(plan, DirectTransport(tmp_path), tmp_path / "run")
    torch.testing.assert_close(
        read_members(run_folder(tmp_path / "run", plan, 0)),
        simulated_members(tmp_path, plan, 0, fused=True),
        rtol=1e-9,
        atol=1e-9,
    )


def test_some_sites_per_round_are_those_of_the_simulation(tmp_path: Path) -> None:
    config = read_config(write_tables(tmp_path))
    options = {"epochs": "2", "batch_size": "10"}
    plan = plan_of(config, [PlannedRun("ditto", options, 6, participation=0.5)])
    run_plan(plan, DirectTransport(tmp_path), tmp_path / "run")
    folder = run_folder(tmp_path / "run", plan, 0)
    assert torch.equal(read_members(folder), simulated_members(tmp_path, plan, 0, fused=False))
    took_part = {entry.sites.took_part for entry in read_rounds(folder / ROUNDS_FILE)}
    assert {len(sites) for sites in took_part} == {2}
    assert len(took_part) > 1
