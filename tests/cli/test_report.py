"""`fedminmax report`: a page and figures from run folders, or one line about what is wrong."""

import re
import shutil
from argparse import Namespace
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from fedminmax.cli import report
from fedminmax.cli.main import build_parser
from fedminmax.report.page import is_report
from tests.cli.command import Done, complaint, fedminmax
from tests.complaints import complaint_of
from tests.runs.run_folders import write_run


def write_report(runs: list[Path], out: Path | None, figures: Path | None, *, force: bool) -> None:
    words = Namespace(
        runs=runs, out=out, figures=figures, force=force, appendix=False, open=False, format="html"
    )
    report.write_report(words)


@dataclass(frozen=True)
class Drawn:
    """A folder with a run, its page and its figures, and how the command ended."""

    folder: Path
    done: Done


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Drawn:
    """Drawn once, because drawing takes a second."""
    folder = tmp_path_factory.mktemp("drawn")
    write_run(folder / "run")
    return Drawn(folder, fedminmax("report", "run", "--figures", "figures", cwd=folder))


def test_a_page_and_its_figures(drawn: Drawn) -> None:
    folder, done = drawn.folder, drawn.done
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    title, *others = done.stdout.splitlines()
    assert title == "It helped “women”, the worst-off group, but “men” did worse."
    assert others == ["Report: run/report.html", "Figures: 4 files in figures"]
    text = (folder / "run" / "report.html").read_text()
    assert is_report(text)
    assert title in text
    assert sorted(path.name for path in (folder / "figures").iterdir()) == [
        f"{name}.{kind}"
        for name in ("run-change-by-group", "run-rounds")
        for kind in ("png", "svg")
    ]


def test_several_runs_and_a_name_for_the_page(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", name="AFL", before=None)
    words = ["report", "a", "b", "--out", "pages/two.html"]
    page = tmp_path / "pages" / "two.html"
    assert fedminmax(*words, cwd=tmp_path).returncode == 0
    write_report([tmp_path / "a"], page, None, force=False)
    assert "AFL" not in page.read_text()
    assert [path.name for path in (tmp_path / "pages").iterdir()] == ["two.html"]


def test_mistakes_are_one_line_and_write_nothing(tmp_path: Path) -> None:
    run, thesis = write_run(tmp_path / "run"), tmp_path / "thesis.html"
    thesis.write_text("years of work")
    before = sorted(tmp_path.rglob("*"))
    assert complaint("report", "nowhere", cwd=tmp_path) == (
        "fedminmax: error: nowhere is not a folder; give a run folder of 'fedminmax train'\n"
    )
    for folders, out, figures, expected in (
        ([run, run], tmp_path / "new.html", None, "run is given twice"),
        ([run], thesis, None, "thesis.html exists and is not a report"),
        ([run], run, None, "run is a folder; give a file such as"),
        ([run], tmp_path / "new.html", thesis, "thesis.html is a file; give a folder"),
        ([run], thesis / "new.html", None, "thesis.html is a file, not a folder for new.html"),
        ([run], tmp_path / "new.html", thesis / "a" / "b", "thesis.html is a file, not a folder"),
    ):
        assert expected in complaint_of(partial(write_report, folders, out, figures, force=True))
    own = run / "report.html"
    own.write_text("years of work")
    assert "is not a report" in complaint_of(partial(write_report, [run], None, None, force=True))
    own.unlink()
    assert sorted(tmp_path.rglob("*")) == before
    assert thesis.read_text() == "years of work"


def test_figures_replace_those_of_a_report_and_nothing_else(
    drawn: Drawn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(drawn.folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    run, page, figures = Path("run"), Path("report.html"), Path("figures")
    before = {path: path.read_bytes() for path in figures.iterdir()}
    again = complaint_of(lambda: write_report([run], Path("b.html"), figures, force=False))
    assert "already exists; give another folder with --figures, or --force" in again
    write_report([run], page, figures, force=True)
    assert {path: path.read_bytes() for path in figures.iterdir()} == before
    page.unlink()
    for name in ("run-rounds.svg", "run-change-by-group.png"):
        own = figures / name
        own.write_text("<svg>drawn by hand for a fedminmax report</svg>")
        said = complaint_of(lambda: write_report([run], page, figures, force=True))
        assert f"{own} exists and is not a figure of a report" in said
        changed = {path for path in figures.iterdir() if path.read_bytes() != before.get(path)}
        assert changed == {own}
        assert not page.exists()
        own.write_bytes(before[own])


def test_it_opens_in_the_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    run = write_run(tmp_path / "run")
    words = build_parser().parse_args(["report", str(run), "--open"])
    for _ in range(2):  # the second replaces the page of the first
        report.write_report(words)
    assert opened == [(run / "report.html").as_uri()] * 2


def test_the_commands_of_its_page_in_the_documentation_exist() -> None:
    text = (Path(__file__).parents[2] / "docs" / "report.md").read_text()
    commands = re.findall("^fedminmax (report .*)$", text, flags=re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        assert build_parser().parse_args(command.split()).runs
