"""The runs of a configuration: a baseline that differs in its goal alone, and rates left open."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedminmax.config.planned_runs import PlannedRun, needs_learning_rate, planned_runs, with_rate
from fedminmax.config.read import TableConfig, read_config
from fedminmax.config.sections import MethodSection
from fedminmax.core.bounds import rounded_rate, safe_learning_rate
from fedminmax.core.iterates import Iterate
from fedminmax.core.losses import brier_loss
from fedminmax.data.tables.load import load_federated_tables
from fedminmax.methods.card import DEFAULT_ROUNDS, Pace
from fedminmax.methods.catalogue import CARDS
from fedminmax.runs.plan import federate, plan_table_runs
from tests.network.network_problem import write_tables


def chosen(name: str, baseline: str | None = "fedavg", **options: str) -> MethodSection:
    return MethodSection(
        name, options, 20, participation=0.5, baseline=baseline, iterate=Iterate.LAST
    )


def built(runs: tuple[PlannedRun, ...]) -> list[Any]:
    return [run.build() for run in runs]


def test_the_baseline_of_one_step_makes_one_full_step_at_the_same_rate() -> None:
    runs = planned_runs(chosen("fedminmax", learning_rate="0.25"))
    method, baseline = built(runs)
    assert runs[1].method == "fedavg"
    assert baseline.learning_rate == method.learning_rate == 0.25
    assert (baseline.epochs, baseline.batch_size) == (1, None)
    assert [run.rounds for run in runs] == [20, 20]
    assert [run.participation for run in runs] == [0.5, 0.5]
    assert [run.iterate for run in runs] == [Iterate.LAST] * 2


def test_the_baseline_of_a_server_that_looks_ahead_has_the_same_server() -> None:
    options = {"optimality_gap": "0.01", "momentum": "0.5", "min_weight": "0.1"}
    runs = planned_runs(chosen("fedminmax-fast", "fedavg-fast", **options))
    method, baseline = built(runs)
    assert (
        (baseline.optimality_gap, baseline.momentum)
        == (method.optimality_gap, method.momentum)
        == (0.01, 0.5)
    )
    assert [run.rounds for run in runs] == [20, 20]


@pytest.mark.parametrize(
    ("key", "baseline"),
    [("fedminmax-fast", "fedavg"), ("fedminmax-fast", "afl"), ("fedminmax", "fedavg-fast")],
)
def test_rates_and_rounds_of_one_server_are_not_those_of_another(key: str, baseline: str) -> None:
    """A first step of 0.001, or 20 rounds, would leave a method of small steps at its start."""
    run = planned_runs(chosen(key, baseline))[1]
    (other,) = built(with_rate([run], "0.25"))
    own = CARDS[baseline].build({}).learning_rate
    assert other.learning_rate == (0.25 if CARDS[baseline].pace is Pace.ONE_STEP else own)
    assert run.rounds == DEFAULT_ROUNDS[CARDS[baseline].pace]


def test_the_baseline_of_local_epochs_has_the_same_epochs_and_batches() -> None:
    options = {"learning_rate": "0.05", "epochs": "3", "batch_size": "7"}
    method, baseline = built(planned_runs(chosen("fedminmax-local", **options)))
    for name in options:
        assert getattr(baseline, name) == getattr(method, name)
    # What was not chosen is the method's own default, not the baseline's.
    method, baseline = built(planned_runs(chosen("qfedavg", learning_rate="0.05")))
    assert (baseline.epochs, baseline.batch_size) == (method.epochs, method.batch_size)


def test_a_baseline_of_one_step_has_a_round_for_each_epoch() -> None:
    method, baseline = planned_runs(chosen("fedminmax-local", "afl", epochs="4"))
    assert CARDS[baseline.method].pace is Pace.ONE_STEP
    assert (method.rounds, baseline.rounds) == (20, 4 * 20)
    assert "epochs" not in baseline.options


@pytest.mark.parametrize("baseline", [None, "fedminmax"])
def test_there_may_be_no_baseline(baseline: str | None) -> None:
    assert [run.method for run in planned_runs(chosen("fedminmax", baseline))] == ["fedminmax"]


def test_an_open_rate_is_filled_in_wherever_it_is_open_and_nowhere_else() -> None:
    runs = planned_runs(chosen("fedminmax", adversary_rate="0.5"))
    assert needs_learning_rate(runs)
    filled = with_rate(runs, "0.37")
    assert not needs_learning_rate(filled)
    assert [method.learning_rate for method in built(filled)] == [0.37, 0.37]
    assert built(filled)[0].adversary_rate == 0.5
    fixed = planned_runs(chosen("fedminmax", learning_rate="0.25"))
    assert not needs_learning_rate(fixed)
    assert with_rate(fixed, "0.37") == fixed


@pytest.mark.parametrize("key", CARDS)
def test_a_configuration_leaves_a_method_the_rate_that_it_has_in_python(key: str) -> None:
    """Local epochs take their paper's rate, FCFL one that its gaps between rates allow."""
    (method,) = built(with_rate(planned_runs(chosen(key, None)), "0.37"))
    own = CARDS[key].build({}).learning_rate
    assert method.learning_rate == (0.37 if own is None else own)
    for other in built(with_rate(planned_runs(chosen("fedminmax-fast", key))[1:], "0.37")):
        assert other.learning_rate == method.learning_rate


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> TableConfig:
    return read_config(write_tables(tmp_path_factory.mktemp("tables")))


@pytest.mark.parametrize("key", CARDS)
@pytest.mark.parametrize("baseline", ["fedavg", "afl"])
def test_the_command_train_plans_the_same(
    key: str, baseline: str, config: TableConfig, tmp_path: Path
) -> None:
    """The rate is computed here from all rows at once, which no site could do."""
    config = replace(config, method=chosen(key, baseline))
    tables = load_federated_tables(config)
    x, group = (
        torch.cat([getattr(part.examples, name) for part in tables.train])
        for name in ("x", "group")
    )
    rate = rounded_rate(safe_learning_rate(brier_loss, x, group, linear=True))
    runs = with_rate(planned_runs(config.method), rate)
    found = plan_table_runs(config, federate(config, tables, "cpu"), tmp_path)
    assert [run.card.key for run in found] == [run.method for run in runs]
    assert [run.method for run in found] == built(runs)
    assert [run.rounds for run in found] == [run.rounds for run in runs]
    assert [run.iterate for run in found] == [run.iterate for run in runs]
    assert [run.participation for run in found] == [run.participation for run in runs]
    if CARDS[key].build({}).learning_rate is None:
        assert all(run.method.learning_rate == float(rate) for run in found)
