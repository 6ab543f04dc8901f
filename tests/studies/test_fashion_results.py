"""The FashionMNIST table: the paper's numbers against its text, folds, and rows that follow."""

import json
from pathlib import Path

import pytest

from fedminmax.core.convergence import Convergence
from fedminmax.core.iterates import STANDARD_ITERATES, Iterate
from fedminmax.data.fashion_mnist import GROUP_NAMES
from fedminmax.studies.fashion import (
    APPENDIX_HEADERS,
    PAPER_APPENDIX,
    TABLE_2_HEADERS,
    FashionRow,
    appendix_cells,
    fashion_notes,
    fashion_rows_as_json,
    markdown_tables,
    paper_risks,
    summarise_fashion,
    table_2_cells,
)
from fedminmax.studies.figures import Curve, draw_accuracies, draw_risk_against_rounds
from fedminmax.studies.scores import GroupScores, RunResult


def scores(shift: float) -> GroupScores:
    risks = tuple(0.01 * group + shift for group in range(10))
    return GroupScores(risks, tuple(1 - risk for risk in risks))


def run(setting: str, method: str, fold: int = 0, shift: float = 0.1, rounds: int = 7) -> RunResult:
    return RunResult(
        setting=setting,
        method=method,
        fold=fold,
        groups=GROUP_NAMES,
        rounds=rounds,
        gradient_evaluations=10 * rounds,
        seconds=1.0,
        shown=Iterate.AVERAGE if method != "FedAvg" else Iterate.LAST,
        scores={which: scores(shift) for which in STANDARD_ITERATES},
        step_factor=None,
        convergence=Convergence(converged=True, reason="converged", rounds=rounds, measure="risk"),
    )


def notes_of(rows: list[FashionRow]) -> list[str]:
    return fashion_notes(rows, [], missing=0)


def test_the_paper_has_ten_rows_of_ten_groups_with_its_table_2_inside() -> None:
    """Table 2 of the paper repeats three columns of the appendix table."""
    table_2 = {
        ("ESG", "AFL"): (0.239, 0.262, 0.494),
        ("ESG", "FedAvg"): (0.243, 0.262, 0.492),
        ("ESG", "FedMinMax"): (0.261, 0.256, 0.307),
        ("SSG", "AFL"): (0.267, 0.236, 0.307),
        ("SSG", "FedAvg"): (0.227, 0.236, 0.463),
        ("SSG", "FedMinMax"): (0.269, 0.238, 0.309),
        ("PSG", "AFL"): (0.244, 0.257, 0.425),
        ("PSG", "FedAvg"): (0.229, 0.236, 0.464),
        ("PSG", "FedMinMax"): (0.263, 0.228, 0.31),
        ("centralized", "FedMinMax"): (0.259, 0.239, 0.311),
    }
    assert list(table_2) == list(PAPER_APPENDIX)
    for (setting, method), expected in table_2.items():
        risks = paper_risks(setting, method)
        assert len(risks) == 10
        assert tuple(risks[a].mean for a in (0, 2, 6)) == expected


def test_folds_are_averaged_and_worst_is_taken_within_each() -> None:
    low, high = run("ESG", "FedAvg", 0, 0.1), run("ESG", "FedAvg", 1, 0.3)
    (row,) = summarise_fashion([high, low], ())
    assert row.folds == 2
    assert row.ours.risks[0].mean == pytest.approx(0.2)
    assert row.ours.risks[0].deviation == pytest.approx(0.2 / 2**0.5)
    assert row.ours.worst.mean == pytest.approx(0.2 + 0.09)
    assert row.ours.mean_accuracy.mean == pytest.approx(1 - 0.2 - 0.045)


def test_a_row_that_follows_is_never_called_a_run() -> None:
    results = [run("ESG", "FedMinMax"), run("PSG", "FedMinMax", shift=0.2)]
    rows = summarise_fashion(results, ("ESG", "SSG", "PSG", "centralized"))
    assert [(row.setting, row.follows) for row in rows] == [
        ("ESG", None),
        ("SSG", "ESG"),
        ("PSG", None),  # it was run: its own numbers stand
        ("centralized", "ESG"),
    ]
    assert rows[2].ours.risks[0].mean == pytest.approx(0.2)
    origins = [cells[-1] for cells in table_2_cells(rows)]
    assert origins == ["7 rounds", "", "= ESG", "", "7 rounds", "", "= ESG", ""]
    assert [entry["run"] for entry in fashion_rows_as_json(rows)] == [True, False, True, False]
    assert any("were not run" in note for note in notes_of(rows))


def test_what_follows_takes_the_first_of_the_trajectory_that_was_run() -> None:
    rows = summarise_fashion([run("PSG", "FedMinMax")], ("ESG", "SSG", "PSG"))
    assert [(row.setting, row.follows) for row in rows] == [
        ("ESG", "PSG"),
        ("SSG", "PSG"),
        ("PSG", None),
    ]


def test_folds_that_got_differently_far_are_said_to_have() -> None:
    results = [run("ESG", "AFL", 0, rounds=120), run("ESG", "AFL", 1, rounds=40)]
    rows = summarise_fashion(results, ())
    assert any("iterate after 40 to 120 rounds for AFL" in note for note in notes_of(rows))
    (entry,) = fashion_rows_as_json(rows)
    assert entry["rounds_by_fold"] == (120, 40)
    assert entry["gradient_evaluations_by_fold"] == (1200, 400)


def test_both_tables_show_the_papers_deviations_and_ours_over_folds() -> None:
    rows = summarise_fashion([run("ESG", "AFL", 0, 0.1), run("ESG", "AFL", 1, 0.3)], ())
    ours, paper = table_2_cells(rows)
    assert ours == ("ESG", "AFL", "ours", "0.200±0.141", "0.220±0.141", "0.260±0.141", "7 rounds")
    assert paper == ("", "", "paper", "0.239±0.003", "0.262±0.001", "0.494±0.004", "")
    assert appendix_cells(rows)[1][3:5] == ("0.239±0.003", "0.046±0.000")


def test_nothing_follows_without_a_comparison_or_without_its_run() -> None:
    assert len(summarise_fashion([run("ESG", "FedMinMax")], ())) == 1
    assert summarise_fashion([], ("ESG", "SSG")) == []
    (row,) = summarise_fashion([run("ESG", "AFL")], ("ESG", "SSG"))
    assert row.method == "AFL"


def test_tables_have_a_cell_for_each_header() -> None:
    rows = summarise_fashion([run("ESG", "AFL"), run("ESG", "FedMinMax")], ("ESG", "SSG"))
    assert {len(cells) for cells in table_2_cells(rows)} == {len(TABLE_2_HEADERS)}
    assert {len(cells) for cells in appendix_cells(rows)} == {len(APPENDIX_HEADERS)}
    assert len(appendix_cells(rows)) == 2 * len(rows)
    text = markdown_tables(rows, fashion_notes(rows, ["A detail."], missing=2))
    assert "A detail." in text
    assert "2 run(s) of this call are not finished" in text
    json.dumps(fashion_rows_as_json(rows))


def test_the_figures_are_drawn_whole_and_the_same_each_time(tmp_path: Path) -> None:
    results = [run(s, m) for s in ("ESG", "SSG") for m in ("AFL", "FedAvg", "FedMinMax")]
    rows = summarise_fashion(results, ("ESG", "PSG", "centralized"))
    curve = Curve("ESG", "AFL", (1, 10), (scores(0.5), scores(0.3)))

    def draw() -> list[bytes]:
        paths = draw_accuracies(rows, tmp_path / "bars")
        paths += draw_risk_against_rounds({"test": [curve]}, tmp_path / "rounds")
        return [path.read_bytes() for path in paths]

    contents = draw()
    assert contents == draw()
    assert {path.name for path in tmp_path.iterdir()} == {
        *("bars.png", "bars.svg", "rounds.png", "rounds.svg")
    }
    assert contents[0].startswith(b"\x89PNG")
    assert b"Shirt" in contents[1]
    assert contents[1].rstrip().endswith(b"</svg>")
