"""A user's mistake: exit code 2, one line that says what to do, and nothing written.

Help answers at once because it imports nothing heavy, and every page has an example.

Without an optional package, its command says in one line what to install.

Options in a person's words.

`fedminmax methods`: every method, every option, and where its default comes from.
"""

import argparse
import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fedminmax.cli import methods
from fedminmax.cli.options import duration
from fedminmax.methods.catalogue import CARDS
from tests.cli.command import call, command, complaint, fedminmax, fedminmax_process, run_here
from tests.cli.hospitals import write_config, write_hospitals


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["compare", "synthetic", "--settings", "XSG"], "choose from ESG, SSG"),
        (["compare", "synthetic", "--rounds", "0"], "at least 1"),
        (["compare", "synthetic", "--local-rounds", "many"], "many"),
        (["compare", "synthetic", "--learning-rate", "nan"], "positive"),
        (["compare", "synthetic", "--seed", "-1"], "positive"),
        (["compare", "synthetic", "--rows", "7"], "rows = 7"),
        (["compare", "synthetic", "--device", "abacus"], "abacus"),
        (["compare", "celeba"], "celeba"),
        (["fly"], "fly"),
        (["trian"], "'trian' is unknown; did you mean 'train'?"),
        (["train", "a.toml", "--round-s"], "--round-s is unknown; did you mean '--rounds'?"),
        (["federation", "lokal"], "'lokal' is unknown; did you mean 'local'?"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], expected: str, tmp_path: Path) -> None:
    assert expected in complaint(*words, cwd=tmp_path)
    assert not (tmp_path / "runs").exists()


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


PAGES: list[list[str]] = [[], ["compare"], ["compare", "synthetic"]]


@pytest.mark.parametrize("page", PAGES)
def test_help_has_an_example(page: list[str], tmp_path: Path) -> None:
    done = fedminmax_process(*page, "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert re.search("examples?:\\s+fedminmax", done.stdout)


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; from fedminmax.cli.main import build_parser; build_parser().format_help();"
        "print([m for m in ('torch', 'numpy', 'rich', 'scipy') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_version(tmp_path: Path) -> None:
    assert fedminmax_process("--version", cwd=tmp_path).stdout.strip() == "0.1.0"


def test_a_reader_who_has_had_enough_is_no_error(tmp_path: Path) -> None:
    """As in `fedminmax methods | head`: the other end of the pipe is closed."""
    with subprocess.Popen(
        command("methods"), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


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
        ("tensorboard", ["torch.utils.tensorboard"], [*TRAIN, "--tensorboard"]),
        ("mlflow", ["fedminmax.exports.mlflow"], [*TRAIN, "--mlflow-uri", "sqlite:///rounds.db"]),
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


@pytest.mark.parametrize(
    ("word", "seconds"), [("90s", 90), ("30m", 1800), ("2h", 7200), ("1h30m", 5400), ("1.5h", 5400)]
)
def test_durations(word: str, seconds: float) -> None:
    assert duration(word) == seconds


@pytest.mark.parametrize("word", ["", "2", "h", "2d", "2h x", "-2h", "1..5h", "0s"])
def test_what_is_not_a_duration(word: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        duration(word)


def test_every_method_has_a_line_and_by_name_its_facts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    lines = fedminmax("methods", cwd=tmp_path).stdout.splitlines()
    for card in CARDS.values():
        (line,) = (line for line in lines if line.split()[:1] == [card.key])
        assert card.optimises in line
    named = " ".join(fedminmax("methods", *CARDS, cwd=tmp_path).stdout.split())
    for card in CARDS.values():
        assert card.paper in named
        for option in card.options:
            assert option.name in named


def test_cards_for_machines(tmp_path: Path) -> None:
    done = fedminmax("methods", "--json", cwd=tmp_path)
    cards = {card["key"]: card for card in json.loads(done.stdout)}
    assert list(cards) == list(CARDS)
    assert cards["fedminmax"]["reveals"] == "only sums over all sites"
    assert cards["afl"]["reveals"] == "each site's own loss"
    assert cards["fedmgda"]["reveals"] == "each site's own update"
    rate = {"name": "adversary_rate", "default": "0.1"}
    assert any(rate.items() <= option.items() for option in cards["fedminmax"]["options"])


def test_one_method_by_name(tmp_path: Path) -> None:
    done = fedminmax("methods", "qfedavg", cwd=tmp_path)
    assert "Li, Sanjabi, Beirami, Smith" in done.stdout
    assert "McMahan" not in done.stdout


def test_an_unknown_name_is_refused(tmp_path: Path) -> None:
    assert "method 'fair' is unknown" in complaint("methods", "fair", cwd=tmp_path)
