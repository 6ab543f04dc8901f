"""Over a network, too, a group of a few rows in all does not decide the model."""

from pathlib import Path

import pytest
import torch

from fedminmax import load_model
from fedminmax.config.planned_runs import PlannedRun
from fedminmax.core.examples import Examples
from fedminmax.core.small_groups import MERGED_NAME, SmallGroupRule
from fedminmax.data.tables.load import load_federated_tables
from fedminmax.metrics.score_rows import score_rows
from fedminmax.network.server.agree import agree
from fedminmax.network.server.agreement import AGREEMENT_FILE, read_agreement
from fedminmax.network.server.news import ProgressReporter
from fedminmax.network.server.run import read_members, run_folder, run_plan
from fedminmax.network.server.sites import PlainSites
from fedminmax.runs.network import collect_network_run
from fedminmax.training.round_record import ROUNDS_FILE, read_rounds
from tests.complaints import complaint_of
from tests.network.network_problem import DirectTransport, plan_of, simulated_members
from tests.network.small_group_tables import write_small_groups

LARGE = ("Anglian / age under 60", "Anglian / age 60 and over", "Basque / age under 60")
SMALL = ("Quechua / age under 60", "Quechua / age 60 and over", "Sami / age 60 and over")
MINIMUM = "minimum_size = 10"


@pytest.mark.parametrize("rule", ["by_size", "merge"])
def test_training_is_that_of_the_simulation(rule: str, tmp_path: Path) -> None:
    groups = f'{MINIMUM}\nsmall = "{rule}"'
    config = write_small_groups(tmp_path, groups=groups)
    runs = [PlannedRun("fedminmax", {"adversary_rate": "0.5"}, 4)]
    plan = plan_of(config, runs)
    outcome = run_plan(plan, DirectTransport(tmp_path), tmp_path / "run")
    assert (outcome.error, outcome.unmeasured) == (None, {})
    own = run_folder(tmp_path / "run", plan, 0)
    assert torch.equal(read_members(own), simulated_members(tmp_path, plan, 0, fused=False))
    rounds = read_rounds(own / ROUNDS_FILE)
    agreed = read_agreement(tmp_path / "run" / AGREEMENT_FILE)
    assert agreed is not None
    counts = agreed.rows(plan.sites).sum(dim=0)
    shares = (counts.double() / counts.sum()).tolist()
    if rule == "by_size":
        assert outcome.group_names == (LARGE[0], LARGE[1], LARGE[2], *SMALL)
        assert agreed.encoding.small_group_names == SMALL
        assert all(list(entry.weights[3:]) == shares[3:] for entry in rounds)
        # Whoever follows the run is not shown the risks of a few rows.
        news = ProgressReporter(plan, tmp_path / "run").collect([0]).live_rounds[-1]
        assert tuple(news.risks) == LARGE
        assert outcome.small_groups == news.small_groups == SMALL
    else:
        assert outcome.group_names == (*LARGE, MERGED_NAME)
        assert list(rounds[-1].weights) != pytest.approx(shares, abs=1e-3)


def test_merged_groups_are_measured_as_in_the_simulation(tmp_path: Path) -> None:
    groups = f'{MINIMUM}\nsmall = "merge"'
    config = write_small_groups(tmp_path, held_out=0.4, groups=groups)
    plan = plan_of(config, [PlannedRun("fedminmax", {}, 2)])
    assert run_plan(plan, DirectTransport(tmp_path), tmp_path / "run").error is None
    (results,) = collect_network_run(tmp_path / "run", plan, config, tmp_path / "out")
    saved = load_model(tmp_path / "out" / "model.safetensors")
    tables = load_federated_tables(config)
    assert results.merged is not None
    assert results.merged.groups == SMALL
    rows = Examples(
        *(
            torch.cat([getattr(part.examples, name) for part in tables.test])
            for name in ("x", "y", "group")
        )
    )
    merged = torch.cat([part.merged for part in tables.test])
    losses = score_rows(saved.model, rows, saved.encoding)["brier_risk"].numerators
    by_group = [
        (results.risk.by_group, rows.group),
        (results.merged.test.metrics["risk"].by_group, merged),
    ]
    for intervals, numbers in by_group:
        for number, interval in enumerate(intervals):
            of_group = losses[(numbers == number).numpy()]
            assert interval.rows == len(of_group) > 0
            assert interval.value == pytest.approx(of_group.mean(), rel=1e-5)


def test_the_rows_of_merged_groups_are_those_of_their_sites(tmp_path: Path) -> None:
    config = write_small_groups(tmp_path, held_out=0.0, groups=f'{MINIMUM}\nsmall = "merge"')
    plan = plan_of(config, [PlannedRun("fedminmax", {}, 1)])
    agreement = agree(plan, PlainSites(plan, DirectTransport(tmp_path)), tmp_path / "run")
    assert agreement.census.counts[:, -1].tolist() == [9, 3, 0]
    assert agreement.census.included.tolist() == [True] * 4
    kept = read_agreement(tmp_path / "run" / AGREEMENT_FILE)
    assert kept is not None
    assert kept.encoding == agreement.encoding


def test_a_run_stops_only_for_tiny_groups_that_play(tmp_path: Path) -> None:
    def start(groups: str) -> None:
        config = write_small_groups(tmp_path, held_out=0.0, groups=groups)
        assert config.schema.small_groups in (SmallGroupRule.BY_SIZE, SmallGroupRule.INCLUDE)
        plan = plan_of(config, [PlannedRun("fedminmax", {}, 1)])
        agree(plan, PlainSites(plan, DirectTransport(tmp_path)), tmp_path / groups[-6:-1])

    start(MINIMUM)
    words = complaint_of(lambda: start(f'{MINIMUM}\nsmall = "include"'))
    assert "has 4 training rows in all, at north, fewer than 5" in words
