"""A server that sees all sites as one holder does what one that sees each of them does."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedminmax.data.tables.config import read_config
from fedminmax.federation.server.agreement import AGREEMENT_FILE, read_agreement
from fedminmax.federation.server.log import ROUNDS_FILE, read_network_rounds
from fedminmax.federation.server.measure import read_measured
from fedminmax.federation.server.run import read_members, run_folder, run_plan
from fedminmax.federation.wire.plan import ALL_SITES, PlannedRun, SecureSums
from tests.federation.adding_transport import AddingTransport
from tests.federation.network_problem import SITES, DirectTransport, plan_of, write_tables

# Sums of rows, local epochs, what depends on losses, two questions in a round, something kept.
ONLY_SUMS = ("fedminmax", "fedminmax-fast", "fedavg", "qfedavg", "group-scaff-pd", "ditto")
LISTED = '[groups]\nvalues = { sex = ["Female", "Male"] }'
SCORES = 14


@pytest.mark.parametrize("key", ONLY_SUMS)
def test_one_holder_with_all_rows_leads_to_the_same_models(key: str, tmp_path: Path) -> None:
    path = write_tables(tmp_path)
    path.write_text(path.read_text().replace("[groups]", LISTED))
    config = read_config(path)
    plain = replace(plan_of(config, [PlannedRun(key, {}, 3)]), validation=0.2)
    masked = replace(plain, secure_sums=SecureSums(3))
    transport = AddingTransport(tmp_path, masked, SCORES)
    for plan, sites, run in (
        (plain, DirectTransport(tmp_path), "plain"),
        (masked, transport, "masked"),
    ):
        assert run_plan(plan, sites, tmp_path / run).error is None
    folders = [run_folder(tmp_path / run, plain, 0) for run in ("plain", "masked")]
    torch.testing.assert_close(*map(read_members, folders), rtol=1e-9, atol=1e-9)
    before, now = (read_network_rounds(own / ROUNDS_FILE) for own in folders)
    for one, other in zip(before, now, strict=True):
        assert other.took_part == SITES
        for name in ("risks", "weights", "validation_risks"):
            assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-9)
        assert one.gradient_evaluations == other.gradient_evaluations
    agreed = read_agreement(tmp_path / "masked" / AGREEMENT_FILE)
    assert agreed is not None
    assert list(agreed.counts) == [ALL_SITES]
    by_site, in_all = (read_measured(tmp_path / run) for run in ("plain", "masked"))
    torch.testing.assert_close(by_site.sums.products, in_all.sums.products, rtol=1e-9, atol=1e-9)
    assert torch.equal(by_site.rows.sum(dim=0, keepdim=True), in_all.rows)


def test_a_site_that_is_missing_in_a_total_is_named_and_its_rows_do_not_count(
    tmp_path: Path,
) -> None:
    path = write_tables(tmp_path)
    path.write_text(path.read_text().replace("[groups]", LISTED))
    plan = plan_of(read_config(path), [PlannedRun("fedminmax", {}, 3)])
    plan = replace(plan, validation=0.2, secure_sums=SecureSums(3))
    gone = {"west": "west is not connected"}
    transport = AddingTransport(tmp_path, plan, SCORES, gone)
    assert run_plan(plan, transport, tmp_path / "run").error is None
    rounds = read_network_rounds(run_folder(tmp_path / "run", plan, 0) / ROUNDS_FILE)
    assert {entry.took_part for entry in rounds} == {("north", "south")}
    assert [entry.refused for entry in rounds] == [gone] * 3
    agreed = read_agreement(tmp_path / "run" / AGREEMENT_FILE)
    assert agreed is not None
    # Nobody computed on all rows.
    assert rounds[-1].gradient_evaluations < 3 * sum(agreed.counts[ALL_SITES])
