"""A user's mistake: exit code 2, one line that says what to do, and nothing written."""

import errno
import os
from pathlib import Path

import pytest

from fedminmax.cli import methods
from tests.cli.command import SMALL, complaint, fedminmax
from tests.cli.in_process import call


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["reproduce", "synthetic", "--methods", "fedmax"], "fedmax"),
        (["reproduce", "synthetic", "--settings", "XSG"], "choose from ESG, SSG"),
        (["reproduce", "synthetic", "--folds-by", "luck"], "luck"),
        (["reproduce", "synthetic", "--rounds", "0"], "at least 1"),
        (["reproduce", "synthetic", "--rounds", "-3"], "at least 1"),
        (["reproduce", "synthetic", "--local-rounds", "many"], "many"),
        (["reproduce", "synthetic", "--learning-rate", "0"], "positive"),
        (["reproduce", "synthetic", "--learning-rate", "nan"], "positive"),
        (["reproduce", "synthetic", "--adversary-rate", "-0.1"], "positive"),
        (["reproduce", "synthetic", "--min-weight", "-1"], "positive"),
        (["reproduce", "synthetic", "--seed", "-1"], "positive"),
        (["reproduce", "synthetic", "--rows", "7", "--quick"], "rows = 7"),
        (["reproduce", "synthetic", "--sites", "7", "--quick"], "multiple of 2"),
        (["reproduce", "synthetic", "--min-weight", "0.6", "--quick"], "at most 0.5"),
        (["reproduce", "synthetic", "--folds-by", "cross_validation", "--folds", "1"], "--folds 2"),
        (["reproduce", "synthetic", "--quick", "--device", "cuda:9"], "cuda:9"),
        (["reproduce", "synthetic", "--quick", "--device", "abacus"], "abacus"),
        (["reproduce", "celeba"], "celeba"),
        (["fly"], "fly"),
        (["trian"], "'trian' is unknown; did you mean 'train'?"),
        (["train", "a.toml", "--round-s"], "--round-s is unknown; did you mean '--rounds'?"),
        (["federation", "lokal"], "'lokal' is unknown; did you mean 'local'?"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], expected: str, tmp_path: Path) -> None:
    assert expected in complaint(*words, cwd=tmp_path)
    assert not (tmp_path / "runs").exists()


def test_a_folder_of_another_configuration_is_left_alone(tmp_path: Path) -> None:
    words = ["reproduce", "synthetic", *SMALL, "--methods", "fedminmax", "--out", "here"]
    assert fedminmax(*words, cwd=tmp_path).returncode == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    message = complaint(*words, "--seed", "9", cwd=tmp_path)
    assert "seed is 0 there and 9 here" in message
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    assert "other files" in complaint("reproduce", "synthetic", "--out", ".", cwd=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_diverging_run_says_round_method_and_advice(tmp_path: Path) -> None:
    done = fedminmax(
        *["reproduce", "synthetic", *SMALL, "--methods", "fedminmax", "--learning-rate", "1e30"],
        cwd=tmp_path,
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "FedMinMax diverged in round 2" in done.stderr
    assert "learning rate" in done.stderr


def test_a_fault_of_the_system_names_the_file_if_there_is_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for file, expected in (
        (None, "fedminmax: error: Input/output error\n"),
        ("a.csv", "fedminmax: error: a.csv: Input/output error\n"),
    ):
        fault = OSError(errno.EIO, os.strerror(errno.EIO), file)

        def fail(*_: object, fault: OSError = fault, **__: object) -> None:
            raise fault

        monkeypatch.setattr(methods, "list_methods", fail)
        assert call("methods") == 1
        assert capsys.readouterr().err == expected
