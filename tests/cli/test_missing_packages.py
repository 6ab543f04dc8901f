"""Without an optional package, its command says in one line what to install."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import ONE_THREAD
from tests.cli.hospitals import write_config, write_hospitals
from tests.cli.in_process import run_here

WITHOUT = """
import sys
sys.modules[sys.argv[1]] = None
from fedminmax.cli.main import main
sys.exit(main(sys.argv[2:]))
"""
TRAIN = ["train", "fedminmax.toml", "--out", "new"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hospitals")
    write_hospitals(folder)
    run_here("train", write_config(folder, method="rounds = 2"), "--out", folder / "run")
    return folder


@pytest.mark.parametrize(
    ("package", "words"),
    [
        ("onnx", ["export", "run", "--onnx", "model.onnx"]),
        ("tensorboard", [*TRAIN, "--tensorboard"]),
        ("mlflow", [*TRAIN, "--mlflow", "sqlite:///rounds.db"]),
    ],
)
def test_one_line_says_what_to_install(package: str, words: list[str], trained: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, package, *words],
        cwd=trained,
        env=ONE_THREAD,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1] == (
        f"fedminmax: error: {package} is needed: pip install 'fedminmax[{package}]'"
    )
    assert "Traceback" not in done.stderr
