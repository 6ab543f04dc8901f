"""Runs of the fast methods in a study: validation rows, the chosen round, an end of their own."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedminmax.core.iterates import STANDARD_ITERATES, Iterate
from fedminmax.studies.finish import finish_runs, is_finished, read_scored_rounds, run_folder
from fedminmax.studies.scores import RunResult, read_result
from fedminmax.studies.study import Length, RunPlan, Selection, Study
from fedminmax.studies.synthetic import synthetic_methods, synthetic_plans, synthetic_study
from fedminmax.training.train import train
from tests.studies.small_study import CONFIG, SETTINGS, STUDY

FAST = ["afl-fast", "fedavg-fast", "fedminmax-fast"]
NETWORK = replace(CONFIG, model="mlp", widths=(4,), rows=800)
LENGTH = Length(rounds=30, local_rounds=4, fast_rounds=12)


def result_of(study: Study, plan: RunPlan, folder: Path) -> RunResult:
    list(finish_runs(study, [plan], folder))
    result = read_result(run_folder(folder, plan))
    assert result is not None
    return result


def plans(config: object = NETWORK, methods: list[str] = FAST) -> list[RunPlan]:
    assert isinstance(config, type(CONFIG))
    return synthetic_plans(config, SETTINGS, Selection(["ESG"], methods, [0], LENGTH))


def test_only_fast_methods_of_networks_set_rows_aside() -> None:
    """The papers' methods train on all rows; a linear model needs no choice of its round."""
    names = [name for name in synthetic_methods(SETTINGS) if name != "centralized"]
    found = {plan.method.name: plan.validation for plan in plans(methods=names)}
    assert {name for name, share in found.items() if share} == {
        *("AFLFast", "FedAvgFast", "FedMinMaxFast")
    }
    assert set(found.values()) == {0.0, 0.1}
    assert {plan.validation for plan in plans(CONFIG, names)} == {0.0}
    assert {plan.rounds for plan in plans()} == {12}


@pytest.mark.parametrize("plan", plans(), ids=lambda plan: plan.key)
def test_the_answer_is_the_round_that_validation_rows_chose(plan: RunPlan, tmp_path: Path) -> None:
    study = synthetic_study(NETWORK)
    plan = replace(plan, rounds_between_tests=5)
    result = result_of(study, plan, tmp_path)
    federation = study.federation(plan)
    assert int(federation.validation_rows.sum()) == 80
    assert int(federation.census.counts.sum()) == 720
    seed = study.fold_seed(0)
    *_, last = rounds = list(train(federation, plan.method, rounds=12, seed=seed))
    # The model of each round is what entered the next one.
    after = [federation.initial_parameters, *(own.parameters(Iterate.LAST) for own in rounds)]
    assert result.validation == last.chosen
    assert result.chosen_round is not None
    expected = study.scores(federation.model(after[result.chosen_round]))
    assert result.shown_scores == result.scores[Iterate.BEST] == expected
    assert result.scores[Iterate.LAST] == study.scores(federation.model(after[12]))
    points = read_scored_rounds(run_folder(tmp_path, plan) / "tests.jsonl")
    assert [point.round for point in points] == [5, 10]
    assert set(points[0].scores) == {*STANDARD_ITERATES, Iterate.BEST}


def test_a_run_in_pieces_chooses_the_same_round(tmp_path: Path) -> None:
    study, (_, _, plan) = synthetic_study(NETWORK), plans()
    whole = result_of(study, plan, tmp_path / "whole")
    calls = 0
    while not is_finished(plan, run_folder(tmp_path / "cut", plan)):
        list(finish_runs(study, [plan], tmp_path / "cut", seconds=0.0))
        calls += 1
    assert calls > 5
    shorter = result_of(study, replace(plan, rounds=5), tmp_path / "longer")
    assert shorter.rounds == 5
    for folder in ("cut", "longer"):
        again = result_of(study, plan, tmp_path / folder)
        assert replace(again, seconds=whole.seconds) == whole


@pytest.mark.parametrize("plan", plans(CONFIG), ids=lambda plan: plan.key)
def test_a_linear_model_ends_when_its_method_is_done(plan: RunPlan, tmp_path: Path) -> None:
    """All of them know when they have arrived, and are finished."""
    result = result_of(STUDY, plan, tmp_path)
    assert is_finished(plan, run_folder(tmp_path, plan))
    assert result.rounds < 12
    assert result.shown_name == "chosen"
    if plan.method.name == "FedAvgFast":
        assert result.convergence is not None
        assert (result.convergence.converged, result.convergence.measure) == (True, "mean risk")
