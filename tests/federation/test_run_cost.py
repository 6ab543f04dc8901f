"""What a run costs is known before: bytes exactly, which the network counts, and rounds roughly."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedminmax.core.linear_structure import linear_structure_of
from fedminmax.core.losses import LOSSES_BY_NAME
from fedminmax.core.messages import Census
from fedminmax.core.models import linear
from fedminmax.data.adult import load_adult
from fedminmax.data.tables.config import read_config
from fedminmax.federation.inprocess import InProcessFederation
from fedminmax.federation.run_cost import message_bytes, usual_rounds
from fedminmax.federation.server.agreement import AGREEMENT_FILE, read_agreement
from fedminmax.federation.server.log import ROUNDS_FILE, read_network_rounds
from fedminmax.federation.server.run import run_folder, run_plan
from fedminmax.federation.train import train
from fedminmax.federation.wire.plan import PlannedRun, task_of
from fedminmax.methods.fedminmax_fast import FedMinMaxFast
from tests.federation.network_problem import SITES, DirectTransport, plan_of, write_tables


@pytest.mark.parametrize("key", ["fedminmax", "fedminmax-fast"])
def test_compressed_replies_have_the_bytes_that_were_expected(key: str, tmp_path: Path) -> None:
    config = read_config(write_tables(tmp_path))
    plan = replace(plan_of(config, [PlannedRun(key, {}, 2)]), compress=True)
    run_plan(plan, DirectTransport(tmp_path), tmp_path / "run")
    rounds = read_network_rounds(run_folder(tmp_path / "run", plan, 0) / ROUNDS_FILE)
    agreed = read_agreement(tmp_path / "run" / AGREEMENT_FILE)
    assert agreed is not None
    task = task_of(plan, agreed.encoding)
    census = Census(agreed.rows(SITES), 2, linear=linear_structure_of(task))
    row = torch.zeros(len(agreed.encoding.names))
    said = message_bytes(plan.runs[0].build(), task, census, row, compress=True)
    assert {(entry.bytes_out, entry.bytes_in) for entry in rounds} == {(said.down, said.up)}
    assert said.up < message_bytes(plan.runs[0].build(), task, census, row).up


@pytest.mark.parametrize("loss", ["cross_entropy", "brier"])
def test_a_run_on_adult_takes_as_many_rounds_as_were_estimated(loss: str) -> None:
    rows = load_adult().train
    federation = InProcessFederation(
        linear(rows.x.shape[1], 2).double(),
        LOSSES_BY_NAME[loss],
        [(rows.x.double(), rows.y, rows.group)],
        ridge=1e-4,
    )
    usual = usual_rounds("fedminmax-fast", linear=True, loss=loss)
    assert usual is not None
    *_, last = train(federation, FedMinMaxFast(), rounds=100)
    assert usual.low <= last.number <= usual.high
    assert last.remaining is not None
    assert last.remaining <= 1e-4
