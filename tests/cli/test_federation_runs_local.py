"""`fedminmax federation local`: mistakes before anything is started."""

from pathlib import Path

import pytest

from fedminmax.cli.main import main
from tests.cli.in_process import complaint_here, run_here
from tests.network.network_problem import write_tables
from tests.runs.network_runs import run_between_sites


def test_a_folder_with_other_files_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_tables(tmp_path)
    before = sorted(path.name for path in tmp_path.iterdir())
    assert main(["federation", "local", str(config), "--out", str(tmp_path)]) == 2
    assert "has other files and no configuration; choose a new folder" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_finished_run_is_printed_again_and_not_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, run = write_tables(tmp_path), tmp_path / "run"
    run_between_sites(config, run).collect()
    before = {path: path.read_bytes() for path in run.rglob("*") if path.suffix == ".safetensors"}
    run_here("federation", "local", config, "--out", run)
    said = capsys.readouterr()
    assert "by group on test records" in said.out
    assert "starting a server" not in said.err
    assert all(path.read_bytes() == content for path, content in before.items())
    # Other rounds would be another run.
    message = complaint_here(capsys, "federation", "local", config, "--out", run, "--rounds", 9)
    assert "belongs to a different configuration" in message


def test_without_an_action_it_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["federation"]) == 0
    assert "federation local fedminmax.toml" in capsys.readouterr().out
