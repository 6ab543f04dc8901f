"""Bytes are known before: those of compressed replies, too, which the network then counts."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedminmax.core.linear_structure import linear_structure_of
from fedminmax.core.messages import Census
from fedminmax.data.tables.config import read_config
from fedminmax.federation.agreement import AGREEMENT_FILE, read_agreement
from fedminmax.federation.network_log import ROUNDS_FILE, read_network_rounds
from fedminmax.federation.network_plan import PlannedRun, task_of
from fedminmax.federation.network_run import run_folder, run_plan
from fedminmax.federation.run_cost import message_bytes
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
    census = Census(agreed.rows(SITES), 2, linear_structure_of(task))
    row = torch.zeros(len(agreed.encoding.names))
    said = message_bytes(plan.runs[0].build(), task, census, row, compress=True)
    assert {(entry.bytes_out, entry.bytes_in) for entry in rounds} == {(said.down, said.up)}
    assert said.up < message_bytes(plan.runs[0].build(), task, census, row).up
