"""The experiment from end to end, small: its files, its JSON, and going on after any stop.

Summaries over folds against numpy, and the paper's numbers against its own text.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.paper.synthetic import (
    HEADERS,
    PAPER_TABLE_1,
    rows_as_json,
    summarise,
    table_cells,
    table_notes,
)
from fedminmax.core.convergence import Convergence
from fedminmax.core.iterates import Iterate
from fedminmax.core.text import markdown_table
from fedminmax.studies.scores import GroupScores, RunResult, spread
from tests.cli.command import one_line
from tests.experiments.small_fashion import FROM_CLONE, SMALL, command, paper

WORDS = ["synthetic", *SMALL, "--rounds", "400", "--out", "here"]
ONE_RUN = [*WORDS, "--methods", "fedminmax", "--settings", "ESG"]


def rows_of(folder: Path) -> Any:
    return json.loads((folder / "results.json").read_text())["rows"]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("uninterrupted")
    done = paper(*ONE_RUN, cwd=folder)
    assert done.returncode == 0, done.stderr
    return rows_of(folder / "here")


@contextmanager
def running_with_a_checkpoint(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a run whose checkpoints are due all the time, and wait until it has written one."""
    paths = [str(folder), FROM_CLONE["PYTHONPATH"]]
    environment = FROM_CLONE | {"PYTHONPATH": os.pathsep.join(paths)}
    (folder / "sitecustomize.py").write_text(
        "import fedminmax.training.checkpoint as r\nr.SECONDS_BETWEEN_CHECKPOINTS = 0.0\n"
    )
    saved = folder / "here" / "runs" / "esg-fedminmax-fold-0" / "checkpoint.previous.bin"
    with subprocess.Popen(
        command(*ONE_RUN), cwd=folder, env=environment, text=True, stderr=subprocess.PIPE
    ) as process:
        try:
            deadline = time.monotonic() + 60
            while not saved.exists():
                assert process.poll() is None, "the run ended before it could be stopped"
                assert time.monotonic() < deadline
                time.sleep(0.01)
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_stopping_and_calling_again_ends_at_the_same_numbers(
    signal_number: signal.Signals, tmp_path: Path, uninterrupted: Any
) -> None:
    with running_with_a_checkpoint(tmp_path) as process:
        process.send_signal(signal_number)
        _, complaint = process.communicate(timeout=60)
    assert process.returncode == (-9 if signal_number == signal.SIGKILL else 130)
    if signal_number != signal.SIGKILL:
        assert "run the same command again" in complaint
    assert not (tmp_path / "here" / "results.json").exists()
    again = paper(*ONE_RUN, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert rows_of(tmp_path / "here") == uninterrupted
    history = (tmp_path / "here/runs/esg-fedminmax-fold-0/rounds.jsonl").read_text()
    rounds = [json.loads(line)["round"] for line in history.splitlines()]
    assert rounds == [*range(1, 11), *range(20, 401, 10)]


def test_a_damaged_checkpoint_falls_back_to_the_previous_one_and_says_so(
    tmp_path: Path, uninterrupted: Any
) -> None:
    with running_with_a_checkpoint(tmp_path) as process:
        process.kill()
    current = tmp_path / "here" / "runs" / "esg-fedminmax-fold-0" / "checkpoint.bin"
    if current.exists():
        current.write_bytes(current.read_bytes()[:1000])
    else:  # killed between the two renames
        current.write_bytes(b"")
    again = paper(*ONE_RUN, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "truncated or corrupt; using the previous checkpoint" in again.stderr
    assert rows_of(tmp_path / "here") == uninterrupted


def test_json_is_alone_on_standard_output_and_nothing_else_is_printed(tmp_path: Path) -> None:
    done = paper(*WORDS[:-4], "--rounds", "5", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    content = json.loads(done.stdout)
    assert len(content["rows"]) == 10
    assert {row["rounds"] for row in content["rows"]} == {2, 3, 5}
    for row in content["rows"]:
        assert 0 < row["best"]["mean"] <= row["worst"]["mean"] < 2


def test_calls_for_single_methods_add_up_to_one_table(tmp_path: Path) -> None:
    words = [*WORDS[:-4], "--rounds", "5", "--out", "here"]
    for method in ("afl", "fedminmax"):
        assert paper(*words, "--methods", method, cwd=tmp_path).returncode == 0
    printed = paper(*words, "--methods", "fedminmax", "--settings", "ESG", cwd=tmp_path)
    assert [row["method"] for row in rows_of(tmp_path / "here")] == ["AFL", "FedMinMax"] * 2
    assert "0.451" in printed.stdout
    assert "results.json" in printed.stdout


def test_fedminmax_settings_and_centralized_are_one_trajectory(tmp_path: Path) -> None:
    """Lemma 2, through the whole command: partitions differ, numbers do not (float32)."""
    words = [*WORDS[:-4], "--rounds", "30", "--out", "here", "--methods", "fedminmax,centralized"]
    assert paper(*words, cwd=tmp_path).returncode == 0
    rows = rows_of(tmp_path / "here")
    assert [row["setting"] for row in rows] == ["ESG", "SSG", "centralized"]
    for row in rows[1:]:
        assert row["worst"]["mean"] == pytest.approx(rows[0]["worst"]["mean"], abs=1e-5)
        assert row["best"]["mean"] == pytest.approx(rows[0]["best"]["mean"], abs=1e-5)


def test_cross_validation_folds_leave_out_different_rows(tmp_path: Path) -> None:
    done = paper(
        *WORDS[:-4],
        *["--rounds", "3", "--methods", "centralized", "--folds", "3"],
        *["--folds-by", "cross_validation", "--json"],
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert row["folds"] == 3
    assert row["worst"]["deviation"] > 0
    # 200 rows in three parts: two folds train on 132 rows and one on 136, or the like.
    assert row["gradient_evaluations"] in (3 * 132, 3 * 134, 3 * 136)


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


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["synthetic", "--methods", "fedmax"], "fedmax"),
        (["synthetic", "--settings", "XSG"], "choose from ESG, SSG"),
        (["synthetic", "--folds-by", "luck"], "luck"),
        (["synthetic", "--rounds", "0"], "at least 1"),
        (["synthetic", "--rounds", "-3"], "at least 1"),
        (["synthetic", "--local-rounds", "many"], "many"),
        (["synthetic", "--learning-rate", "0"], "positive"),
        (["synthetic", "--learning-rate", "nan"], "positive"),
        (["synthetic", "--adversary-rate", "-0.1"], "positive"),
        (["synthetic", "--min-weight", "-1"], "positive"),
        (["synthetic", "--seed", "-1"], "positive"),
        (["synthetic", "--rows", "7", "--quick"], "rows = 7"),
        (["synthetic", "--sites", "7", "--quick"], "multiple of 2"),
        (["synthetic", "--min-weight", "0.6", "--quick"], "at most 0.5"),
        (["synthetic", "--folds-by", "cross_validation", "--folds", "1"], "--folds 2"),
        (["synthetic", "--quick", "--device", "cuda:9"], "cuda:9"),
        (["synthetic", "--quick", "--device", "abacus"], "abacus"),
        (["celeba"], "celeba"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], expected: str, tmp_path: Path) -> None:
    assert expected in one_line(paper(*words, cwd=tmp_path))
    assert not (tmp_path / "runs").exists()


def test_a_folder_of_another_configuration_is_left_alone(tmp_path: Path) -> None:
    words = ["synthetic", *SMALL, "--methods", "fedminmax", "--out", "here"]
    assert paper(*words, cwd=tmp_path).returncode == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    message = one_line(paper(*words, "--seed", "9", cwd=tmp_path))
    assert "seed is 0 there and 9 here" in message
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    assert "other files" in one_line(paper("synthetic", "--out", ".", cwd=tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_diverging_run_says_round_method_and_advice(tmp_path: Path) -> None:
    done = paper(
        *["synthetic", *SMALL, "--methods", "fedminmax", "--learning-rate", "1e30"],
        cwd=tmp_path,
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "FedMinMax diverged in round 2" in done.stderr
    assert "learning rate" in done.stderr


def test_a_history_that_is_no_text_is_named_and_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [*ONE_RUN, "--rounds", "5000"]
    paper(*words, "--budget", "0.05s", cwd=tmp_path)
    history = Path("here/runs/esg-fedminmax-fold-0/rounds.jsonl")
    assert not history.with_name("result.json").exists()
    history.write_bytes(history.read_bytes() + b'{"round": 1, "\xff\xfe": 0}\n')
    before = history.read_bytes()
    for further in ([], ["--status"]):
        complaint = one_line(paper(*words, *further, cwd=tmp_path))
        assert f"{history} is damaged: it is not text; remove it" in complaint
    assert history.read_bytes() == before
