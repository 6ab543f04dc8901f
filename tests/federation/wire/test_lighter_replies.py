"""Replies in fewer bytes: nothing is lost over the rounds, honest ones pass, and runs go on."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedminmax.core.linear_structure import LinearStructure
from fedminmax.core.messages import Sums, zero_sums
from fedminmax.data.tables.config import read_config
from fedminmax.federation.server.log import ROUNDS_FILE, read_network_rounds
from fedminmax.federation.server.run import read_members, run_folder, run_plan
from fedminmax.federation.wire.compression import round_curvature, round_step
from fedminmax.federation.wire.plan import NetworkPlan, PlannedRun, digest_of
from tests.federation.network_problem import (
    SITES,
    DirectTransport,
    plan_of,
    simulated_members,
    write_tables,
)

RUNS = {
    "fedminmax": {"learning_rate": "0.3"},
    "fedavg": {"epochs": "2"},
    "ditto": {"epochs": "2"},
    "fedminmax-fast": {},
}


def reply_of(step: torch.Tensor, scale: float) -> Sums:
    return replace(zero_sums(0, 2, 0), step=step, scale=scale)


def test_what_is_left_out_of_a_step_comes_with_later_ones() -> None:
    """Displacements are steps by scale: those sent and what is kept add up to the true ones."""
    generator = torch.Generator().manual_seed(0)
    kept = true = sent = torch.zeros(50, dtype=torch.float64)
    for number in range(40):
        step, scale = torch.randn(50, generator=generator).double(), 1.0 + number % 3
        reply, kept = round_step(reply_of(step, scale), kept)
        assert reply.step.dtype is torch.bfloat16
        true = true + step / scale
        sent = sent + reply.step.double() / scale
    torch.testing.assert_close(sent + kept, true, rtol=0, atol=1e-12)
    # One step's rounding, not that of forty.
    assert float(kept.norm()) < 2.0**-7 * 50**0.5


def test_a_step_is_never_longer_than_the_checks_allow() -> None:
    """Weights may fall from one round to the next; what waits may then be longer than the step."""
    long, short = torch.full((7,), 1.003e6), torch.full((7,), -1.003)
    _, kept = round_step(reply_of(long, 1.0), torch.zeros(7, dtype=torch.float64))
    assert float(kept.norm()) > 100 * float(short.norm())
    reply, later = round_step(reply_of(short, 1.0), kept)
    assert float(reply.step.double().norm()) <= 1.01 * float(short.norm())
    torch.testing.assert_close(reply.step.double() + later, kept + short, rtol=1e-6, atol=0)


def test_rounded_curvature_is_never_below_the_true_one() -> None:
    linear = LinearStructure(2, 5, intercept=True, loss="brier")
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(1)).double()
    x[:, 2] = 1e3 * x[:, 1]
    rows, columns = torch.tril_indices(6, 6)
    packed = (x.T @ x)[rows, columns]
    reply = replace(zero_sums(0, 1, 0), statistics=packed)
    rounded = round_curvature(reply, linear).statistics
    assert rounded.dtype is torch.float32
    both = linear.free_curvature(torch.stack([packed, rounded.double()]))
    more = both[1] - both[0]
    assert float(torch.linalg.eigvalsh(more).min()) >= -1e-12 * float(both[0].trace())
    assert 0.0 < float(more.trace()) < 1e-5 * float(both[0].trace())


def plan_for(folder: Path, key: str, rounds: int) -> NetworkPlan:
    config = read_config(write_tables(folder))
    return replace(plan_of(config, [PlannedRun(key, RUNS[key], rounds)]), compress=True)


@pytest.mark.parametrize("key", RUNS)
def test_a_run_with_rounded_replies_goes_on_as_if_it_had_never_stopped(
    key: str, tmp_path: Path
) -> None:
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    plan = plan_for(tmp_path / "whole", key, 6)
    run_plan(plan, DirectTransport(tmp_path / "whole"), tmp_path / "whole" / "run")
    folder = run_folder(tmp_path / "whole" / "run", plan, 0)
    found = read_members(folder)
    rounds = read_network_rounds(folder / ROUNDS_FILE)
    assert all(entry.took_part == SITES and not entry.refused for entry in rounds)
    # Exactly the numbers that rounding changes, and by no more than it does.
    exact = simulated_members(tmp_path / "whole", plan, 0, fused=False)
    assert 0.0 < float((found - exact).norm()) < 1e-2 * float(exact.norm())

    for length in (3, 6):
        part = plan_for(tmp_path / "parts", key, length)
        run_plan(part, DirectTransport(tmp_path / "parts"), tmp_path / "parts" / "run")
    again = read_members(run_folder(tmp_path / "parts" / "run", plan, 0))
    assert torch.equal(again, found)


def test_squared_error_and_own_updates_stay_exact(tmp_path: Path) -> None:
    config = read_config(write_tables(tmp_path))
    plan = replace(plan_of(config, [PlannedRun("fedmgda", {}, 2)]), compress=True)
    run_plan(plan, DirectTransport(tmp_path), tmp_path / "run")
    found = read_members(run_folder(tmp_path / "run", plan, 0))
    assert torch.equal(found, simulated_members(tmp_path, plan, 0, fused=False))


def test_a_site_that_agreed_to_a_configuration_agreed_to_it_rounded(tmp_path: Path) -> None:
    plan = plan_for(tmp_path, "fedminmax", 3)
    assert digest_of(plan) == digest_of(replace(plan, compress=False))
