"""A run folder is read whole or refused in one line that names the file and what to do."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fedminmax.report.read_run import read_run, read_runs
from tests.complaints import complaint_of
from tests.runs.run_folders import write_run


def edit(path: Path, change: Callable[[dict[str, object]], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    "name", ["census.json", "config.toml", "rounds.jsonl", "baseline/rounds.jsonl"]
)
def test_a_missing_file(name: str, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    (folder / name).unlink()
    message = complaint_of(lambda: read_run(folder))
    assert message == (
        f"{folder / name} is missing; finish or repeat the run with 'fedminmax train'"
    )


@pytest.mark.parametrize("part", [".", "baseline"])
def test_an_unfinished_run(part: str, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    (folder / part / "results.json").unlink()
    message = complaint_of(lambda: read_run(folder))
    assert f"{folder / part} has no finished run; run 'fedminmax train' again" in message


def test_no_folder(tmp_path: Path) -> None:
    message = complaint_of(lambda: read_run(tmp_path / "nowhere"))
    assert message.endswith("nowhere is not a folder; give a run folder of 'fedminmax train'")


@pytest.mark.parametrize("name", ["census.json", "results.json", "rounds.jsonl"])
@pytest.mark.parametrize("content", [b"{", b"[]\n", b"\xff\xfe\n", b'{"format": 1}\n'])
def test_a_damaged_file(name: str, content: bytes, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    (folder / name).write_bytes(content)
    message = complaint_of(lambda: read_run(folder))
    assert message.startswith(str(folder / name))
    assert "fedminmax train" in message


def test_a_damaged_line_is_named_by_its_number(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    lines = (folder / "rounds.jsonl").read_text().splitlines(keepends=True)
    lines[6] = lines[6].replace("risks", "riskz")
    (folder / "rounds.jsonl").write_text("".join(lines))
    assert "rounds.jsonl is damaged in line 7 (risks" in complaint_of(lambda: read_run(folder))


@pytest.mark.parametrize("number", ["1e308", "NaN", "Infinity"])
def test_a_number_that_no_figure_can_show(number: str, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    lines = (folder / "rounds.jsonl").read_text().splitlines(keepends=True)
    entry = json.loads(lines[6])
    entry["risks"][0] = float(number)
    lines[6] = json.dumps(entry) + "\n"
    (folder / "rounds.jsonl").write_text("".join(lines))
    message = complaint_of(lambda: read_run(folder))
    assert "rounds.jsonl is damaged in line 7: a number in it is out of range" in message


def test_a_last_line_that_a_crash_cut_off_is_not_part_of_the_run(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    with (folder / "rounds.jsonl").open("a") as file:
        file.write('{"round": 101, "ri')
    assert read_run(folder).chosen.rounds[-1].round == 100


def test_results_of_another_version(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    edit(folder / "results.json", lambda content: content.update(format=2))
    assert "has format 2, this version reads format 1" in complaint_of(lambda: read_run(folder))


def test_files_that_do_not_fit_together(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    for name, change, expected in (
        ("census.json", lambda c: c["groups"].reverse(), "names other groups than results.json"),
        ("census.json", lambda c: c["train"].pop(), "'train' is not 2 sites x 2 groups"),
        ("results.json", lambda c: c["test"].update(metrics={}), "train with held-out records"),
        (
            "results.json",
            lambda c: c["test"]["metrics"]["accuracy"]["by_group"].pop(),
            "accuracy has 1 values for 2 groups",
        ),
        ("census.json", lambda c: c.update(other_tests={"x": [1]}), "'other_tests' is not 1 s"),
        ("census.json", lambda c: c.update(sites=[], train=[], test=[]), "sites"),
        ("census.json", lambda c: c["train"][0].__setitem__(0, 10**30), "train.0.0"),
        ("results.json", lambda c: c["test"]["metrics"].pop("risk"), "test has no risk"),
        ("results.json", lambda c: c.update(seconds=1e308), "seconds"),
        ("results.json", lambda c: c.update(target="\ud800"), "is damaged"),
        (
            "results.json",
            lambda c: c["test"]["metrics"]["risk"]["by_group"][0].update(value=1e308),
            "test.metrics.risk.by_group.0.value",
        ),
        (
            "baseline/results.json",
            lambda c: c["test"]["metrics"]["risk"]["by_group"][0].update(rows=7),
            "measured on other groups or test records",
        ),
    ):
        copy = shutil.copytree(folder, tmp_path / "copy")
        edit(copy / name, change)
        message = complaint_of(lambda: read_run(tmp_path / "copy"))
        assert message.startswith(str(copy / name))
        assert expected in message
        shutil.rmtree(copy)


def test_runs_that_do_not_compare(tmp_path: Path) -> None:
    first = write_run(tmp_path / "a")
    second = write_run(tmp_path / "b", task="regression")
    assert "whose risks cannot be compared" in complaint_of(lambda: read_runs([first, second]))
    twice = [first, tmp_path / "." / "a"]
    assert "is given twice; give each run once" in complaint_of(lambda: read_runs(twice))


def test_methods_that_repeat_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / "a"), write_run(tmp_path / "b")]
    labels = [run.label for run in read_runs(folders)]
    assert labels == ["FedMinMax (a)", "FedMinMax (b)"]
    again = [write_run(tmp_path / name / "run") for name in "cd"]
    labels = [run.label for run in read_runs(again)]
    assert labels == ["FedMinMax (run) (1)", "FedMinMax (run) (2)"]
