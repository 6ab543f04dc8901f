"""`fedminmax federation local`: mistakes before anything is started."""

from pathlib import Path

import pytest

from fedminmax.cli.main import main
from tests.federation.network_problem import write_tables


def test_the_number_of_sites_must_be_that_of_the_holders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_tables(tmp_path)
    out = tmp_path / "run"
    assert main(["federation", "local", str(config), "--sites", "4", "--out", str(out)]) == 2
    assert "--sites 4, but" in capsys.readouterr().err
    assert not out.exists()


def test_a_finished_run_is_not_written_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_tables(tmp_path)
    (tmp_path / "model.safetensors").touch()
    assert main(["federation", "local", str(config), "--out", str(tmp_path)]) == 2
    assert "has a finished run; give another folder" in capsys.readouterr().err


def test_without_an_action_it_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["federation"]) == 0
    assert "federation local fedminmax.toml" in capsys.readouterr().out
