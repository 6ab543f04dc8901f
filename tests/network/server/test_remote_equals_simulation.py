"""Every method through bytes and back equals the simulation: same rows, same numbers."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedminmax.advice.cost import message_bytes
from fedminmax.config.planned_runs import PlannedRun
from fedminmax.config.read import read_config
from fedminmax.core.linear_structure import linear_structure_of
from fedminmax.core.messages import Census
from fedminmax.methods.catalogue import CARDS
from fedminmax.network.server.agreement import AGREEMENT_FILE, read_agreement
from fedminmax.network.server.run import read_members, run_folder, run_plan
from fedminmax.network.wire.plan import Precision, task_of
from fedminmax.training.round_record import ROUNDS_FILE, read_rounds
from tests.network.network_problem import (
    SITES,
    DirectTransport,
    plan_of,
    simulated_members,
    write_tables,
)

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
    assert {(entry.sites.bytes_out, entry.sites.bytes_in) for entry in rounds} == {
        (said.down, said.up)
    }


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
