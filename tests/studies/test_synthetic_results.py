"""Summaries over folds against numpy, and the paper's numbers against its own text."""

import json
from dataclasses import replace

import numpy as np
import pytest

from fedminmax.core.convergence import Convergence
from fedminmax.core.iterates import Iterate
from fedminmax.core.text import markdown_table
from fedminmax.studies.scores import GroupScores, RunResult, spread
from fedminmax.studies.synthetic import (
    HEADERS,
    PAPER_TABLE_1,
    rows_as_json,
    summarise,
    table_cells,
    table_notes,
)

VERDICTS = {
    True: Convergence(converged=True, reason="converged", rounds=7, measure="mean risk"),
    False: Convergence(converged=False, reason="falling", rounds=7, measure="mean risk"),
}


def run(
    fold: int, last: tuple[float, float], average: tuple[float, float], factor: float | None = None
) -> RunResult:
    return RunResult(
        setting="SSG",
        method="FedMinMax",
        fold=fold,
        rounds=7,
        gradient_evaluations=70,
        seconds=1.0,
        shown=Iterate.AVERAGE,
        groups=("group 0", "group 1"),
        scores={
            Iterate.LAST: GroupScores(last),
            Iterate.AVERAGE: GroupScores(average),
            Iterate.TAIL_AVERAGE: GroupScores(average),
        },
        step_factor=factor,
        convergence=VERDICTS[True],
    )


def test_spread_is_mean_and_sample_deviation() -> None:
    values = [0.45, 0.46, 0.48]
    assert spread(values).mean == pytest.approx(np.mean(values))
    assert spread(values).deviation == pytest.approx(np.std(values, ddof=1))
    assert spread([0.3]).deviation is None


def test_worst_and_best_are_taken_within_each_fold() -> None:
    """Fold 0 is worst in group 0 and fold 1 in group 1: means of groups would hide both."""
    (row,) = summarise([run(0, (0.9, 0.1), (0.5, 0.3)), run(1, (0.1, 0.9), (0.2, 0.6))])
    assert row.worst.mean == pytest.approx((0.5 + 0.6) / 2)
    assert row.best.mean == pytest.approx((0.3 + 0.2) / 2)
    assert row.worst_by_iterate[Iterate.LAST].mean == pytest.approx(0.9)
    assert row.excess == pytest.approx(0.55 - 0.45)


@pytest.mark.parametrize(
    ("verdicts", "marked", "notes"),
    [
        ((True, True), False, 0),
        ((True, False), True, 1),
    ],
)
def test_rows_with_a_run_that_has_not_converged_are_marked(
    verdicts: tuple[bool, ...], *, marked: bool, notes: int
) -> None:
    runs = [
        replace(run(fold, (0.5, 0.4), (0.5, 0.4)), convergence=VERDICTS[verdict])
        for fold, verdict in enumerate(verdicts)
    ]
    rows = summarise(runs)
    assert table_cells(rows)[0][1] == "FedMinMax" + " \N{DAGGER}" * marked
    told = [note for note in table_notes(rows, "seeds", missing=0) if "converged" in note]
    assert len(told) == notes
    assert all(note.startswith("\N{DAGGER}") == marked for note in told)


def test_a_stalled_q_fedavg_is_said_in_the_notes() -> None:
    quiet = summarise([run(0, (0.5, 0.4), (0.5, 0.4), factor=0.3)])
    stalled = summarise([run(0, (0.5, 0.4), (0.5, 0.4), factor=0.01)])
    assert not any("curvature" in note for note in table_notes(quiet, "seeds", missing=0))
    assert any("0.010" in note for note in table_notes(stalled, "seeds", missing=0))


def test_rows_of_different_numbers_of_folds_are_told() -> None:
    other = replace(run(0, (0.5, 0.4), (0.5, 0.4)), setting="ESG")
    rows = summarise([run(0, (0.5, 0.4), (0.5, 0.4)), run(1, (0.5, 0.4), (0.5, 0.4)), other])
    assert "over 1 to 2 fold(s)" in table_notes(rows, "seeds", missing=0)[0]


def test_unfinished_runs_are_said_in_the_notes() -> None:
    rows = summarise([run(0, (0.5, 0.4), (0.5, 0.4))])
    assert any(note.startswith("3 run(s)") for note in table_notes(rows, "seeds", missing=3))


def test_json_holds_what_the_table_shows() -> None:
    rows = summarise([run(0, (0.9, 0.1), (0.5, 0.3))])
    (entry,) = json.loads(json.dumps(rows_as_json(rows)))
    assert entry["worst"]["mean"] == 0.5
    assert entry["worst_by_iterate"]["last"]["mean"] == 0.9
    assert entry["paper_worst"] == 0.451
    assert "| 0.500 |" in markdown_table(HEADERS, table_cells(rows))


def test_deviations_are_shown_only_where_there_are_several_folds() -> None:
    one = summarise([run(0, (0.9, 0.1), (0.5, 0.3))])
    two = summarise([run(0, (0.9, 0.1), (0.5, 0.3)), run(1, (0.9, 0.1), (0.7, 0.3))])
    assert "±" not in markdown_table(HEADERS, table_cells(one))
    assert "0.600±0.141" in markdown_table(HEADERS, table_cells(two))


def test_fedminmax_has_the_papers_lowest_worst_group_risk_in_each_setting() -> None:
    for setting in ("ESG", "SSG"):
        worst = {m: risks[0] for (s, m), risks in PAPER_TABLE_1.items() if s == setting}
        assert min(worst.values()) == worst["FedMinMax"]
        assert len(worst) == 5
