"""The FashionMNIST experiment from end to end, small: on an excerpt, and slowly on all images.

The FashionMNIST table: the paper's numbers against its text, folds, and rows that follow.
"""

import json
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.paper import fashion_mnist
from experiments.paper.fashion import (
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
from experiments.paper.fashion_mnist import GROUP_NAMES, download_fashion_mnist
from experiments.paper.figures import Curve, draw_accuracies, draw_risk_against_rounds
from fedminmax.core.convergence import Convergence
from fedminmax.core.iterates import STANDARD_ITERATES, Iterate
from fedminmax.studies.scores import GroupScores, RunResult
from tests.cli.command import ONE_THREAD, one_line
from tests.experiments.small_fashion import FROM_CLONE, command, paper
from tests.needs import lacking

WORDS = ["fashion-mnist", "--quick", "--out", "here"]
EIGHTY = {"COLUMNS": "80"}
# So that a process that is killed within seconds has left a checkpoint of its own.
CHECKPOINT_EVERY_ROUND = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
import pytest
from fedminmax.training import checkpoint
from experiments.paper.__main__ import main
from tests.experiments.small_fashion import use_excerpt
checkpoint.SECONDS_BETWEEN_CHECKPOINTS = 0.0
use_excerpt(pytest.MonkeyPatch())
main()
"""
TINY = [
    *("--channels", "2,3", "--epochs", "1", "--local-rounds", "2", "--rounds", "6"),
    *("--fast-rounds", "4"),
]


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The quick version as a user calls it, with the published files."""
    folder = tmp_path_factory.mktemp("quick")
    done = subprocess.run(
        command(*WORDS),
        cwd=folder,
        env=FROM_CLONE | EIGHTY,
        capture_output=True,
        text=True,
        check=False,
    )
    if "FashionMNIST is not on this machine" in done.stderr:
        lacking(done.stderr)
    assert done.returncode == 0, done.stderr
    # A slow machine says every half a minute how far it is.
    assert all("% done" in line for line in done.stderr.splitlines())
    (folder / "printed").write_text(done.stdout)
    return folder


def content_of(folder: Path) -> Any:
    return json.loads((folder / "here" / "results.json").read_text())


def rows_of(folder: Path) -> Any:
    return content_of(folder)["rows"]


def worst(row: Any) -> float:
    return float(row["scores"][row["iterate"]]["worst_risk"]["mean"])


@pytest.mark.slow
def test_fedminmax_is_below_fedavg_on_the_worst_group_in_every_setting(quick: Path) -> None:
    risks = {(row["setting"], row["method"]): worst(row) for row in rows_of(quick)}
    assert len(risks) == 19
    for setting in ("ESG", "SSG", "PSG"):
        assert risks[setting, "FedMinMax"] < risks[setting, "FedAvg"] - 0.1
        assert risks[setting, "FedMinMaxFast"] < risks[setting, "FedAvg"] - 0.1


@pytest.mark.slow
def test_all_settings_of_fedminmax_are_run_and_start_as_one_trajectory(quick: Path) -> None:
    """Steps this large amplify float32 rounding over many rounds: the first ten must agree."""
    rows = [row for row in rows_of(quick) if row["method"] == "FedMinMax"]
    assert [row["run"] for row in rows] == [True] * 4
    starts = []
    for setting in ("esg", "ssg", "psg", "centralized"):
        history = quick / "here" / "runs" / f"{setting}-fedminmax-fold-0" / "rounds.jsonl"
        points = [json.loads(line) for line in history.read_text().splitlines()[:10]]
        starts.append(np.array([point["risks"] + point["weights"] for point in points]))
    for start in starts[1:]:
        np.testing.assert_allclose(start, starts[0], atol=1e-3)


@pytest.mark.slow
def test_the_quick_version_says_that_it_is_one(quick: Path) -> None:
    printed = (quick / "printed").read_text()
    assert "Quick: fewer rows, a smaller model and larger steps" in printed
    for group in ("T-shirt", "Trouser", "Ankle boot"):
        assert group in printed
    assert "0.494" in printed  # the paper's AFL in ESG
    tables = printed[: printed.index("Brier risk (sum over classes)")]
    assert max(map(len, tables.splitlines())) <= 80
    assert "…" not in tables


@pytest.mark.slow
def test_tables_figures_and_curves_are_left(quick: Path) -> None:
    names = {path.name for path in (quick / "here").iterdir()}
    assert names == {
        *("config.json", "results.json", "table.md", "runs"),
        *("accuracies.png", "accuracies.svg"),
        *("risk_against_rounds.png", "risk_against_rounds.svg"),
    }


@pytest.mark.slow
def test_a_second_call_repeats_nothing_and_prints_the_same(
    quick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", EIGHTY["COLUMNS"])
    before = (quick / "here" / "results.json").read_bytes()
    started = time.monotonic()
    assert paper(*WORDS, cwd=quick).stdout == (quick / "printed").read_text()
    assert (quick / "here" / "results.json").read_bytes() == before
    status = paper(*WORDS, "--status", cwd=quick)
    assert "19 of 19 runs are finished; time left: 0 s." in status.stdout
    assert time.monotonic() - started < 60


@pytest.mark.usefixtures("_fashion_excerpt")
def test_following_settings_are_checked_and_marked(tmp_path: Path) -> None:
    done = paper(
        *WORDS, *TINY, "--reuse-lemma2", "--methods", "fedminmax,centralized", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    content = content_of(tmp_path)
    assert [row["follows"] for row in content["rows"]] == [None, "ESG", "ESG", "ESG"]
    assert content["one_trajectory"]["differences"]["float64"] < 1e-12
    assert [path.name for path in (tmp_path / "here" / "runs").iterdir()] == [
        "esg-fedminmax-fold-0"
    ]
    assert "checked over 3 rounds" in done.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("_fashion_excerpt")
def test_a_narrower_call_takes_nothing_away(tmp_path: Path) -> None:
    """Rows that were checked to follow, their figures, and other runs' curves stay."""
    both = ["--methods", "afl,fedminmax", "--settings", "ESG,SSG"]
    assert paper(*WORDS, *TINY, "--reuse-lemma2", *both, cwd=tmp_path).returncode == 0
    before, here = content_of(tmp_path), tmp_path / "here"
    curves = (here / "risk_against_rounds.svg").read_bytes()
    narrow = paper(
        *(*WORDS, *TINY, "--reuse-lemma2", "--methods", "fedminmax", "--settings", "ESG"),
        cwd=tmp_path,
    )
    assert narrow.returncode == 0
    assert narrow.stderr == ""
    assert content_of(tmp_path) == before
    assert (here / "risk_against_rounds.svg").read_bytes() == curves
    more = ["--reuse-lemma2", "--methods", "fedminmax", "--settings", "PSG,SSG"]
    assert paper(*WORDS, *TINY, *more, cwd=tmp_path).returncode == 0
    comparison = content_of(tmp_path)["one_trajectory"]
    assert (comparison["source"], comparison["followers"]) == ("ESG", ["SSG", "PSG"])


@pytest.mark.slow
@pytest.mark.usefixtures("_fashion_excerpt")
def test_a_budget_and_kills_add_up_to_the_same_numbers(tmp_path: Path) -> None:
    words = [*WORDS, *TINY, "--rounds", "40", "--methods", "fedminmax", "--settings", "PSG"]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir()
    cut.mkdir()
    assert paper(*words, cwd=whole).returncode == 0
    stopped = paper(*words, "--budget", "0.1s", "--json", cwd=cut)
    assert stopped.returncode == 0, stopped.stderr
    content = json.loads(stopped.stdout)
    assert content["rows"] == []
    assert "1 run(s) of this call are not finished: run it again." in content["notes"]
    status = json.loads(paper(*words, "--status", "--json", cwd=cut).stdout)
    assert 0 < status["runs"][0]["round"] < 40
    assert status["runs"][0]["seconds_left"] > 0
    # The same number of threads as in the other calls: rounding depends on how rows are shared.
    checkpoint = cut / "here" / "runs" / "psg-fedminmax-fold-0" / "checkpoint.bin"
    before = checkpoint.read_bytes()
    with subprocess.Popen(
        [sys.executable, "-c", CHECKPOINT_EVERY_ROUND, *words],
        cwd=cut,
        env=ONE_THREAD,
        stdout=subprocess.DEVNULL,
    ) as process:
        while checkpoint.read_bytes() == before and process.poll() is None:
            time.sleep(0.01)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert checkpoint.read_bytes() != before
    assert not (checkpoint.parent / "result.json").exists()
    assert paper(*words, cwd=cut).returncode == 0
    assert rows_of(cut) == rows_of(whole)


@pytest.mark.usefixtures("_fashion_excerpt")
def test_a_status_writes_nothing(tmp_path: Path) -> None:
    done = paper(*WORDS, "--status", cwd=tmp_path)
    assert "0 of 19 runs are finished; time left: unknown before the first round." in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("_fashion_excerpt")
@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--rows", "401"], "rows = 401; give a multiple of 10 from 10 to 600"),
        (["--rows", "200"], "rows are too few for 20 sites of pairwise different sizes"),
        (["--sites", "7"], "7 sites cannot be shared equally by 10 blocks of groups"),
        (["--channels", "16"], "'16' is not two numbers such as 16,32"),
        (["--budget", "2"], "'2' is not a time such as 90s, 30m, 2h or 1h30m"),
        (["--settings", "XSG"], "'XSG' is unknown; choose from ESG, SSG, PSG"),
        (["--min-weight", "0.2"], "min_weight"),
        (["--device", "nowhere"], "device nowhere cannot be used here; give cpu"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(
    words: list[str], complaint: str, tmp_path: Path
) -> None:
    done = paper(*WORDS, *words, cwd=tmp_path)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("_fashion_excerpt")
def test_a_folder_with_part_of_the_data_is_told_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "t10k-labels-idx1-ubyte.gz").write_bytes(b"")
    nobody = partial(download_fashion_mnist, publisher="http://127.0.0.1:9")
    monkeypatch.setattr(fashion_mnist, "download_fashion_mnist", nobody)
    done = paper(*WORDS, "--data-dir", "data", cwd=tmp_path)
    assert done.returncode == 2
    assert "data lacks train-images-idx3-ubyte" in done.stderr
    assert "cannot download" in done.stderr
    assert not (tmp_path / "here").exists()


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


@pytest.mark.usefixtures("_fashion_excerpt")
def test_parity_of_ten_classes_is_refused_before_the_first_round(tmp_path: Path) -> None:
    words = ["compare-fashion-mnist", "--rows", "400", "--sites", "20"]
    assert "two classes" in one_line(paper(*words, "--methods", "fairfed", cwd=tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("_fashion_excerpt")
def test_all_methods_on_images_leave_out_those_that_cannot_take_part(tmp_path: Path) -> None:
    words = ["--rows", "100", "--sites", "10", "--rounds", "1", "--local-rounds", "1"]
    few = ["--fast-rounds", "1", "--epochs", "1", "--channels", "2,2", "--settings", "ESG"]
    done = paper("compare-fashion-mnist", *words, *few, "--methods", "all", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    methods = {row["method"] for row in content["rows"]}
    assert {"fedminmax", "fedavg", "drfa", "minimax-fair"} <= methods
    left_out = {note.split()[0] for note in content["notes"] if "is skipped: " in note}
    # Ten labels: no method for parity, which needs two.
    assert left_out == {"fairfed", "fedfb", "fedgft", "logofair", "fcfl"}
    assert not methods & left_out
