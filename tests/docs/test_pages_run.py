"""Pages that no other test runs are run here, block by block, as a reader would."""

import shutil
import subprocess
from contextlib import chdir
from pathlib import Path

import pytest

from tests.cli.command import fedminmax
from tests.docs.blocks import HERE, NOT_RUN, RUN_BY, blocks_of, lines_of, words_of

START = "docs/getting_started.md"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of the first page, a configuration for them, and a run."""
    folder = tmp_path_factory.mktemp("tables")
    script = next(block for block in blocks_of(START) if block.language == "python")
    with chdir(folder):
        exec(script.text, {})  # noqa: S102 - our own page
    init = ("init", "north.csv", "south.csv", "west.csv", "--target", "outcome", "--groups", "sex")
    for command in (init, ("train", "fedminmax.toml")):
        assert fedminmax(*command, cwd=folder).returncode == 0
    return folder


# What a page expects its reader to have: files of the first page, and their names here.
ALL = (("", ""),)
CSV = tuple((name, name) for name in ("north.csv", "south.csv", "west.csv"))
RUN = "runs/fedminmax"
NEEDS: dict[str, tuple[tuple[str, str], ...]] = {
    "README.md": CSV,
    START: (),
    "docs/advise.md": ALL,
    "docs/audit.md": ALL,
    "docs/documents.md": ALL,
    "docs/choosing_groups.md": ALL,
    "docs/choosing_method.md": ALL,
    "docs/deployment.md": CSV,
    "docs/last_layer.md": (),
    "docs/report.md": ((RUN, "runs/clinic"), (RUN, "runs/clinic-afl")),
}


def test_every_page_has_what_its_reader_has() -> None:
    assert set(NEEDS) == {page for (page, _), by in RUN_BY.items() if by == HERE}


@pytest.mark.slow
@pytest.mark.parametrize("page", NEEDS)
def test_a_page_runs_as_written(page: str, tables: Path, tmp_path: Path) -> None:
    folder = tmp_path / "reader"
    folder.mkdir()
    for source, name in NEEDS[page]:
        _copy(tables / source, folder / name)
    for block in blocks_of(page):
        if RUN_BY.get((page, block.language)) != HERE:
            continue
        if block.language == "python":
            with chdir(folder):
                exec(block.text, {})  # noqa: S102 - our own page
        else:
            for line in lines_of(block.text):
                _run(line, folder)


def _run(line: str, folder: Path) -> None:
    if line.startswith(tuple(NOT_RUN)):
        return
    program, *words = words_of(line)
    if program == "fedminmax":
        done = fedminmax(*words, cwd=folder)
        assert done.returncode == 0, f"{line}: {done.stderr}"
    else:
        subprocess.run(["sh", "-ec", line], cwd=folder, check=True)  # noqa: S607


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        shutil.copy(source, target)
