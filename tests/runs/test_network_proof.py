"""A run over a network proves what the same run in one process proves, and stops where it does."""

from pathlib import Path

import pytest

from fedminmax.config.overrides import Overrides
from fedminmax.network.wire.site_rules import SiteRules
from fedminmax.runs.federation import FederationRun
from fedminmax.runs.folder import finished_results
from tests.network.network_problem import SITES, write_tables
from tests.runs.network_runs import run_both_ways


def fast_config(folder: Path) -> Path:
    path = write_tables(folder)
    words = path.read_text().replace("learning_rate = 0.3", "").replace("rounds = 3", "rounds = 40")
    words = words.replace('"fedminmax"', '"fedminmax-fast"')
    model = 'kind = "logistic"\nloss = "cross_entropy"\nridge = 1e-2'
    path.write_text(words.replace('kind = "logistic"', model))
    return path


def test_the_same_bounds_after_as_many_rounds(tmp_path: Path) -> None:
    apart, together = map(finished_results, run_both_ways(fast_config(tmp_path)))
    assert apart.proof is not None
    assert together.proof is not None
    assert apart.method.rounds == together.method.rounds < 40
    assert apart.proof.lower == pytest.approx(together.proof.lower, rel=1e-9)
    assert apart.proof.upper == pytest.approx(together.proof.upper, rel=1e-9)
    assert apart.convergence is not None
    assert apart.convergence.converged


def test_the_command_line_says_when_to_stop(tmp_path: Path) -> None:
    record = FederationRun(
        "",
        fast_config(tmp_path),
        kit=None,
        sites=SITES,
        site_rules=SiteRules(),
        overrides=Overrides(optimality_gap=0.5),
    )
    assert record.read_config().method.options["optimality_gap"] == "0.5"
