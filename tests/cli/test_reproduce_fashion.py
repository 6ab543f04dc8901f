"""The FashionMNIST experiment from end to end, small: on an excerpt, and slowly on all images."""

import json
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedminmax.cli import study_runs
from fedminmax.data.fashion_mnist import download_fashion_mnist
from tests.cli.command import ONE_THREAD, fedminmax, fedminmax_process
from tests.needs import lacking

WORDS = ["reproduce", "fashion-mnist", "--quick", "--out", "here"]
# So that a process that is killed within seconds has left a checkpoint of its own.
CHECKPOINT_EVERY_ROUND = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
import pytest
from fedminmax.training import checkpoint
from fedminmax.cli.main import main
from tests.data.small_fashion import use_excerpt
checkpoint.SECONDS_BETWEEN_CHECKPOINTS = 0.0
use_excerpt(pytest.MonkeyPatch())
main()
"""
TINY = [
    *("--channels", "2,3", "--epochs", "1", "--local-rounds", "2", "--rounds", "6"),
    *("--fast-rounds", "4"),
]


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The quick version as a user calls it, with the published files."""
    folder = tmp_path_factory.mktemp("quick")
    done = fedminmax_process(*WORDS, cwd=folder)
    if "FashionMNIST is not on this machine" in done.stderr:
        lacking(done.stderr)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    (folder / "printed").write_text(done.stdout)
    return folder


def content_of(folder: Path) -> Any:
    return json.loads((folder / "here" / "results.json").read_text())


def rows_of(folder: Path) -> Any:
    return content_of(folder)["rows"]


def worst(row: Any) -> float:
    return float(row["scores"][row["iterate"]]["worst_risk"]["mean"])


@pytest.mark.slow
def test_fedminmax_is_below_fedavg_on_the_worst_group_in_every_setting(quick: Path) -> None:
    risks = {(row["setting"], row["method"]): worst(row) for row in rows_of(quick)}
    assert len(risks) == 19
    for setting in ("ESG", "SSG", "PSG"):
        assert risks[setting, "FedMinMax"] < risks[setting, "FedAvg"] - 0.1
        assert risks[setting, "FedMinMaxFast"] < risks[setting, "FedAvg"] - 0.1


@pytest.mark.slow
def test_all_settings_of_fedminmax_are_run_and_start_as_one_trajectory(quick: Path) -> None:
    """Steps this large amplify float32 rounding over many rounds: the first ten must agree."""
    rows = [row for row in rows_of(quick) if row["method"] == "FedMinMax"]
    assert [row["run"] for row in rows] == [True] * 4
    starts = []
    for setting in ("esg", "ssg", "psg", "centralized"):
        history = quick / "here" / "runs" / f"{setting}-fedminmax-fold-0" / "rounds.jsonl"
        points = [json.loads(line) for line in history.read_text().splitlines()[:10]]
        starts.append(np.array([point["risks"] + point["weights"] for point in points]))
    for start in starts[1:]:
        np.testing.assert_allclose(start, starts[0], atol=1e-3)


@pytest.mark.slow
def test_the_quick_version_says_that_it_is_one(quick: Path) -> None:
    printed = (quick / "printed").read_text()
    assert "Quick: fewer rows, a smaller model and larger steps" in printed
    for group in ("T-shirt", "Trouser", "Ankle boot"):
        assert group in printed
    assert "0.494" in printed  # the paper's AFL in ESG
    tables = printed[: printed.index("Brier risk (sum over classes)")]
    assert max(map(len, tables.splitlines())) <= 80
    assert "…" not in tables


@pytest.mark.slow
def test_tables_figures_and_curves_are_left(quick: Path) -> None:
    names = {path.name for path in (quick / "here").iterdir()}
    assert names == {
        *("config.json", "results.json", "table.md", "runs"),
        *("accuracies.png", "accuracies.svg"),
        *("risk_against_rounds.png", "risk_against_rounds.svg"),
    }


@pytest.mark.slow
def test_a_second_call_repeats_nothing_and_prints_the_same(quick: Path) -> None:
    before = (quick / "here" / "results.json").read_bytes()
    started = time.monotonic()
    assert fedminmax(*WORDS, cwd=quick).stdout == (quick / "printed").read_text()
    assert (quick / "here" / "results.json").read_bytes() == before
    status = fedminmax(*WORDS, "--status", cwd=quick)
    assert "19 of 19 runs are finished; time left: 0 s." in status.stdout
    assert time.monotonic() - started < 60


@pytest.mark.usefixtures("_fashion_excerpt")
def test_following_settings_are_checked_and_marked(tmp_path: Path) -> None:
    done = fedminmax(
        *WORDS, *TINY, "--reuse-lemma2", "--methods", "fedminmax,centralized", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    content = content_of(tmp_path)
    assert [row["follows"] for row in content["rows"]] == [None, "ESG", "ESG", "ESG"]
    assert content["one_trajectory"]["differences"]["float64"] < 1e-12
    assert [path.name for path in (tmp_path / "here" / "runs").iterdir()] == [
        "esg-fedminmax-fold-0"
    ]
    assert "checked over 3 rounds" in done.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("_fashion_excerpt")
def test_a_narrower_call_takes_nothing_away(tmp_path: Path) -> None:
    """Rows that were checked to follow, their figures, and other runs' curves stay."""
    both = ["--methods", "afl,fedminmax", "--settings", "ESG,SSG"]
    assert fedminmax(*WORDS, *TINY, "--reuse-lemma2", *both, cwd=tmp_path).returncode == 0
    before, here = content_of(tmp_path), tmp_path / "here"
    curves = (here / "risk_against_rounds.svg").read_bytes()
    narrow = fedminmax(
        *(*WORDS, *TINY, "--reuse-lemma2", "--methods", "fedminmax", "--settings", "ESG"),
        cwd=tmp_path,
    )
    assert narrow.returncode == 0
    assert narrow.stderr == ""
    assert content_of(tmp_path) == before
    assert (here / "risk_against_rounds.svg").read_bytes() == curves
    more = ["--reuse-lemma2", "--methods", "fedminmax", "--settings", "PSG,SSG"]
    assert fedminmax(*WORDS, *TINY, *more, cwd=tmp_path).returncode == 0
    comparison = content_of(tmp_path)["one_trajectory"]
    assert (comparison["source"], comparison["followers"]) == ("ESG", ["SSG", "PSG"])


@pytest.mark.slow
@pytest.mark.usefixtures("_fashion_excerpt")
def test_a_budget_and_kills_add_up_to_the_same_numbers(tmp_path: Path) -> None:
    words = [*WORDS, *TINY, "--rounds", "40", "--methods", "fedminmax", "--settings", "PSG"]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir()
    cut.mkdir()
    assert fedminmax(*words, cwd=whole).returncode == 0
    stopped = fedminmax(*words, "--budget", "0.1s", "--json", cwd=cut)
    assert stopped.returncode == 0, stopped.stderr
    content = json.loads(stopped.stdout)
    assert content["rows"] == []
    assert "1 run(s) of this call are not finished: run it again." in content["notes"]
    status = json.loads(fedminmax(*words, "--status", "--json", cwd=cut).stdout)
    assert 0 < status["runs"][0]["round"] < 40
    assert status["runs"][0]["seconds_left"] > 0
    # The same number of threads as in the other calls: rounding depends on how rows are shared.
    checkpoint = cut / "here" / "runs" / "psg-fedminmax-fold-0" / "checkpoint.bin"
    before = checkpoint.read_bytes()
    with subprocess.Popen(
        [sys.executable, "-c", CHECKPOINT_EVERY_ROUND, *words],
        cwd=cut,
        env=ONE_THREAD,
        stdout=subprocess.DEVNULL,
    ) as process:
        while checkpoint.read_bytes() == before and process.poll() is None:
            time.sleep(0.01)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert checkpoint.read_bytes() != before
    assert not (checkpoint.parent / "result.json").exists()
    assert fedminmax(*words, cwd=cut).returncode == 0
    assert rows_of(cut) == rows_of(whole)


@pytest.mark.usefixtures("_fashion_excerpt")
def test_a_status_writes_nothing(tmp_path: Path) -> None:
    done = fedminmax(*WORDS, "--status", cwd=tmp_path)
    assert "0 of 19 runs are finished; time left: unknown before the first round." in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("_fashion_excerpt")
@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--rows", "401"], "rows = 401; give a multiple of 10 from 10 to 600"),
        (["--rows", "200"], "rows are too few for 20 sites of pairwise different sizes"),
        (["--sites", "7"], "7 sites cannot be shared equally by 10 blocks of groups"),
        (["--channels", "16"], "'16' is not two numbers such as 16,32"),
        (["--budget", "2"], "'2' is not a time such as 90s, 30m, 2h or 1h30m"),
        (["--settings", "XSG"], "'XSG' is unknown; choose from ESG, SSG, PSG"),
        (["--min-weight", "0.2"], "min_weight"),
        (["--device", "nowhere"], "device nowhere cannot be used here; give cpu"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(
    words: list[str], complaint: str, tmp_path: Path
) -> None:
    done = fedminmax(*WORDS, *words, cwd=tmp_path)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("_fashion_excerpt")
def test_a_folder_with_part_of_the_data_is_told_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "t10k-labels-idx1-ubyte.gz").write_bytes(b"")
    nobody = partial(download_fashion_mnist, publisher="http://127.0.0.1:9")
    monkeypatch.setattr(study_runs, "download_fashion_mnist", nobody)
    done = fedminmax(*WORDS, "--data-dir", "data", cwd=tmp_path)
    assert done.returncode == 2
    assert "data lacks train-images-idx3-ubyte" in done.stderr
    assert "cannot download" in done.stderr
    assert not (tmp_path / "here").exists()
