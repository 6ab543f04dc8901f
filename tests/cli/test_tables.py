"""Tables on narrow terminals: each figure is there in full, in a line that begins with its name."""

import io
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

from fedminmax.cli.terminal import print_table
from fedminmax.findings.text import number
from tests.cli.command import run_here
from tests.cli.hospitals import HOSPITALS, draw_patients, results_of, write_config

GROUPS = [
    "Aymara speaking / widowed or divorced / age 30 to 45",
    "Bantu speaking / never married before / age 45 and over",
    "Cree speaking / married, living apart / age under 30",
]
FIRST_WORDS = tuple(name.split()[0] for name in GROUPS)
HEADERS = ["group", "rows", "risk", "false positive rate", "calibration error"]


def _printed(width: int) -> list[str]:
    lines = [
        [name, f"{place},234", *(f"0.{place}{n}23 (0.0009 to 0.9)" for n in range(3))]
        for place, name in enumerate(GROUPS)
    ]
    file = io.StringIO()
    print_table(Console(file=file, width=width), "A title of some words", HEADERS, lines)
    return file.getvalue().splitlines()


@pytest.mark.parametrize("width", range(36, 140, 4))
def test_every_figure_stands_beside_its_name(width: int) -> None:
    printed = _printed(width)
    assert max(map(len, printed)) <= width
    for place, name in enumerate(GROUPS):
        for word in name.split():
            assert any(word in line for line in printed)
        figures = [f"{place},234", *(f"0.{place}{n}23 (0.0009 to 0.9)" for n in range(3))]
        for figure in figures:
            (where,) = [number for number, line in enumerate(printed) if figure in line]
            # In a list the name is above its figures.
            while not printed[where].lstrip().startswith(FIRST_WORDS):
                where -= 1
            assert printed[where].split()[0] == name.split()[0]
    for header in HEADERS[2:]:
        for word in header.split():
            assert any(word in line for line in printed)


def test_a_sentence_is_wrapped_rather_than_cut() -> None:
    file = io.StringIO()
    words = "Aymara speaking 0.31, Bantu speaking 0.29, Cree speaking 0.28"
    lines = [["clinics", "running", "12", words]]
    headers = ["run", "status", "round", "highest risks"]
    print_table(Console(file=file, width=50), "Runs", headers, lines, sentences=1)
    printed = file.getvalue()
    assert max(map(len, printed.splitlines())) <= 50
    assert set(words.split()) <= set(printed.split())


def test_a_name_cannot_steer_the_terminal() -> None:
    file = io.StringIO()
    print_table(Console(file=file, width=60), "Rows", ["group", "rows"], [["a\x1b[2J\nb", "3"]])
    assert "\x1b" not in file.getvalue()
    (line,) = [line for line in file.getvalue().splitlines() if "3" in line]
    assert line.split() == ["a\\x1b[2J", "b", "3"]


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_train_and_evaluate_on_a_narrow_terminal(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    columns: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    names = {"Female": GROUPS[0], "Male": GROUPS[1]}
    for seed, hospital in enumerate(HOSPITALS):
        frame = draw_patients(300, seed).with_columns(pl.col("sex").replace(names))
        frame.write_csv(f"{hospital}.csv")
    monkeypatch.setenv("COLUMNS", str(columns))
    run_here("train", write_config(tmp_path, data="held_out = 0.5", method="rounds = 2"))
    trained = capsys.readouterr().out
    run_here("evaluate", "runs/fedminmax")
    evaluated = capsys.readouterr().out
    metrics = results_of(Path("runs", "fedminmax"))["test"]["metrics"]
    for place, name in enumerate(GROUPS[:2]):
        values = {metric: metrics[metric]["by_group"][place]["value"] for metric in metrics}
        assert all(word in printed for printed in (trained, evaluated) for word in name.split())
        assert number(1000 * (1 - values["accuracy"]), 0) in trained
        assert all(number(value, 3) in evaluated for value in values.values())


@pytest.mark.parametrize("width", [20, 80])
def test_a_table_without_lines_is_its_headers(width: int) -> None:
    """As of a study whose budget ended before its first run did."""
    file = io.StringIO()
    print_table(Console(file=file, width=width), "Runs", ["method", "risk"], [], sections=True)
    assert "method" in file.getvalue()
