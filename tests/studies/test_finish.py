"""Runs of a study: whatever way they are cut into calls, they end at the same results.

Runs of the fast methods in a study: validation rows, the chosen round, an end of their own.
"""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.paper.plans import Selection
from experiments.paper.synthetic import synthetic_methods, synthetic_plans
from fedminmax.core.iterates import STANDARD_ITERATES, Iterate
from fedminmax.runs.folder import claim_run
from fedminmax.studies.finish import (
    Tick,
    finish_runs,
    is_finished,
    read_scored_rounds,
    read_status,
    run_folder,
    seconds_left,
)
from fedminmax.studies.scores import RunResult, read_result, read_results
from fedminmax.studies.study import Length, RunPlan, Study, synthetic_study
from fedminmax.training.train import train
from tests.complaints import complaint_of
from tests.studies.small_study import CONFIG, PLANS, SETTINGS, STUDY, plans_up_to


def finish(folder: Path, seconds: float = 1e9) -> list[Tick]:
    return list(finish_runs(STUDY, PLANS, folder, seconds))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    finish(folder)
    return folder


def test_plans_are_the_tables_lines() -> None:
    names = [(plan.setting, plan.method.name, plan.rounds) for plan in PLANS]
    assert names == [
        ("ESG", "FedAvg", 4),
        ("ESG", "FedMinMax", 30),
        ("SSG", "FedAvg", 4),
        ("SSG", "FedMinMax", 30),
        ("centralized", "FedMinMax", 30),
    ]
    assert PLANS[0].cost == 4 * 2 * 80
    assert PLANS[1].cost == 30 * 80


def test_a_budget_of_nothing_still_makes_headway_and_ends_at_the_same_numbers(
    finished: Path, tmp_path: Path
) -> None:
    calls = 0
    while any(read_result(run_folder(tmp_path, plan)) is None for plan in PLANS):
        finish(tmp_path, seconds=0.0)
        calls += 1
        assert calls < 200
    assert calls > len(PLANS)
    without_time = [
        [replace(result, seconds=0.0) for result in read_results(folder)]
        for folder in (finished, tmp_path)
    ]
    assert without_time[0] == without_time[1]


def test_every_run_is_judged_by_its_history(finished: Path) -> None:
    found = [result.convergence for result in read_results(finished)]
    assert [(verdict.rounds, verdict.converged) for verdict in found] == [
        (30, False),
        (4, False),
        (30, False),
        (4, False),
        (30, False),
    ]


def test_a_budget_stops_between_rounds_with_a_checkpoint(tmp_path: Path) -> None:
    started = time.monotonic()
    ticks = finish(tmp_path, seconds=0.0)
    assert ticks[-1].round < PLANS[0].rounds
    assert time.monotonic() - started < 30
    assert read_result(run_folder(tmp_path, PLANS[0])) is None


def test_runs_can_be_taken_further_as_if_they_had_never_ended(
    finished: Path, tmp_path: Path
) -> None:
    list(finish_runs(STUDY, plans_up_to(12, 3), tmp_path))
    assert [status.finished for status in read_status(PLANS, tmp_path)] == [False] * 5
    assert [status.round for status in read_status(PLANS, tmp_path)] == [3, 10, 3, 10, 10]
    finish(tmp_path)
    for plan in PLANS:
        whole, prolonged = (
            read_result(run_folder(folder, plan)) for folder in (finished, tmp_path)
        )
        assert whole is not None
        assert prolonged is not None
        assert prolonged.scores == whole.scores


def test_a_call_for_fewer_rounds_leaves_longer_runs_as_they_are(finished: Path) -> None:
    before = read_results(finished)
    list(finish_runs(STUDY, plans_up_to(5, 1), finished))
    assert read_results(finished) == before


def test_a_call_for_fewer_rounds_finishes_an_unfinished_longer_run_where_it_stands(
    finished: Path, tmp_path: Path
) -> None:
    plan = PLANS[1]
    for _ in range(5):
        list(finish_runs(STUDY, [plan], tmp_path, seconds=0.0))
    assert read_result(run_folder(tmp_path, plan)) is None
    list(finish_runs(STUDY, [replace(plan, rounds=2)], tmp_path))
    shorter = read_result(run_folder(tmp_path, plan))
    assert shorter is not None
    assert shorter.rounds == 5
    list(finish_runs(STUDY, [plan], tmp_path))
    whole, prolonged = (read_result(run_folder(folder, plan)) for folder in (finished, tmp_path))
    assert whole is not None
    assert prolonged is not None
    assert prolonged.scores == whole.scores


def test_a_run_held_by_another_process_is_left_to_it(tmp_path: Path) -> None:
    with claim_run(run_folder(tmp_path, PLANS[0])):
        finish(tmp_path)
    done = [read_result(run_folder(tmp_path, plan)) is not None for plan in PLANS]
    assert done == [False, True, True, True, True]


def test_test_scores_are_recorded_on_the_way_and_end_at_the_result(tmp_path: Path) -> None:
    plan = replace(PLANS[1], rounds_between_tests=10)
    for _ in range(100):
        list(finish_runs(STUDY, [plan], tmp_path, seconds=0.0))
    points = read_scored_rounds(run_folder(tmp_path, plan) / "tests.jsonl")
    assert [point.round for point in points] == [10, 20, 30]
    result = read_result(run_folder(tmp_path, plan))
    assert result is not None
    assert points[-1].scores == result.scores


def test_a_damaged_result_is_named(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text('{"setting": 1}')
    assert "result.json is damaged" in complaint_of(lambda: read_result(tmp_path))


def test_the_status_counts_rounds_and_estimates_from_the_runs_most_alike(finished: Path) -> None:
    statuses = read_status(PLANS, finished)
    assert [status.round for status in statuses] == [plan.rounds for plan in PLANS]
    assert [seconds_left(status, statuses) for status in statuses] == [0.0] * len(PLANS)


def test_estimates_are_proportional_to_the_work_left(tmp_path: Path) -> None:
    """Two seconds for a third of the cost leave four; a run not begun takes a like one's pace."""
    nothing = read_status(PLANS, tmp_path)
    assert [seconds_left(status, nothing) for status in nothing] == [None] * len(PLANS)
    begun = replace(nothing[1], round=10, seconds=2.0)
    local = replace(nothing[0], round=1, seconds=3.0)
    statuses = [local, begun, *nothing[2:]]
    left = [seconds_left(status, statuses) for status in statuses]
    assert left == pytest.approx([9.0, 4.0, 12.0, 6.0, 6.0])


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
