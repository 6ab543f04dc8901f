"""Without an optional package, its command says in one line what to install."""

import sys
from pathlib import Path

import pytest

from tests.cli.hospitals import write_config, write_hospitals
from tests.cli.in_process import call, run_here

TRAIN = ["train", "fedminmax.toml", "--out", "new"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hospitals")
    write_hospitals(folder)
    run_here("train", write_config(folder, method="rounds = 2"), "--out", folder / "run")
    return folder


@pytest.mark.parametrize(
    ("package", "users", "words"),
    [
        ("onnx", ["fedminmax.exports.onnx"], ["export", "run", "--onnx", "model.onnx"]),
        (
            "tensorboard",
            ["fedminmax.exports.tensorboard_log", "torch.utils.tensorboard"],
            [*TRAIN, "--tensorboard"],
        ),
        (
            "mlflow",
            ["fedminmax.exports.mlflow_log"],
            [*TRAIN, "--mlflow-uri", "sqlite:///rounds.db"],
        ),
    ],
)
def test_one_line_says_what_to_install(
    package: str,
    users: list[str],
    words: list[str],
    trained: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for module in users:  # which other tests may have imported, when the package was there
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.chdir(trained)
    assert call(*words) == 2
    said = capsys.readouterr().err
    assert said.splitlines()[-1] == (
        f"fedminmax: error: {package} is needed: pip install 'fedminmax[{package}]'"
    )
    assert "Traceback" not in said
