"""`fedminmax compare` as a user meets it: tables, calls that add up, failures, refusals.

`fedminmax compare adult`: no network, Centralized MinMax in its own setting alone, --quick.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import complaint, fedminmax

SMALL = [
    *["--rows", "400", "--sites", "4", "--rounds", "40", "--local-rounds", "3"],
    *["--epochs", "2", "--batch-size", "20", "--learning-rate", "0.5"],
]


def compare(*words: str, cwd: Path, code: int = 0) -> dict[str, Any]:
    done = fedminmax("compare", "synthetic", *SMALL, *words, "--json", cwd=cwd)
    assert done.returncode == code, done.stderr
    content: dict[str, Any] = json.loads(done.stdout)
    return content


def numbers(content: dict[str, Any]) -> dict[tuple[str, str, str], float]:
    return {
        (row["setting"], row["method"], row["model"]): row["worst"]["mean"]
        for row in content["rows"]
    }


def test_the_table_has_what_the_methods_returned(tmp_path: Path) -> None:
    content = compare("--methods", "fedminmax,fedavg,ditto,ap-star", "--seeds", "2", cwd=tmp_path)
    lines = [(row["setting"], row["method"], row["model"]) for row in content["rows"]]
    assert lines == [
        (setting, method, model)
        for setting in ("ESG", "SSG")
        for method, model in [
            ("fedminmax", "average"),
            ("fedavg", "last"),
            ("ditto", "last"),
            ("ditto", "personal"),
            ("ap-star", "chosen"),
        ]
    ]
    for row in content["rows"]:
        assert row["seeds"] == 2
        assert row["worst"]["mean"] >= row["mean"]["mean"] >= row["best"]["mean"] > 0.1
        assert row["difference"]["mean"] == pytest.approx(
            row["worst"]["mean"] - row["best"]["mean"]
        )
    by_method = {(row["setting"], row["method"]): row for row in content["rows"]}
    assert by_method["ESG", "fedminmax"]["gradient_evaluations"] == 40 * 400
    assert by_method["ESG", "fedavg"]["gradient_evaluations"] == 3 * 2 * 400
    assert by_method["ESG", "ditto"]["gradient_evaluations"] == 2 * 3 * 2 * 400
    # A model of x alone answers 1 equally often in both groups, which x does not depend on.
    assert by_method["ESG", "fedavg"]["parity_difference"]["mean"] == 0.0
    folder = tmp_path / "runs/compare-synthetic"
    assert (folder / "risks.png").read_bytes().startswith(b"\x89PNG")
    picture = (folder / "risks.svg").read_text()
    assert all(name in picture for name in ("ESG", "SSG"))
    # Ditto's global model is FedAvg's, whatever the personal ones do.
    values = numbers(content)
    assert values["SSG", "ditto", "last"] == values["SSG", "fedavg", "last"]
    # In SSG a personal model serves one group alone, so even the worse-off group gains.
    assert values["SSG", "ditto", "personal"] < values["SSG", "ditto", "last"]


def test_calls_add_up_and_the_same_call_runs_nothing_again(tmp_path: Path) -> None:
    compare("--methods", "fedavg", cwd=tmp_path)
    compare("--methods", "afl", "--settings", "SSG", cwd=tmp_path)
    result = tmp_path / "runs/compare-synthetic/runs/esg-fedavg-fold-0/result.json"
    stamp = result.stat().st_mtime_ns
    content = compare("--methods", "afl,fedavg", cwd=tmp_path)
    assert result.stat().st_mtime_ns == stamp
    alone = compare("--methods", "afl,fedavg", "--out", "apart", cwd=tmp_path)
    assert numbers(content) == numbers(alone)
    assert len(content["rows"]) == 4


def test_a_failing_method_loses_nothing_of_the_others(tmp_path: Path) -> None:
    broken = "fedavg:learning_rate=1e38"
    words = ["--methods", f"fedminmax,{broken},afl", "--settings", "SSG"]
    content = compare(*words, cwd=tmp_path, code=1)
    assert [row["method"] for row in content["rows"]] == ["fedminmax", "afl"]
    assert any(broken in note and "failed" in note for note in content["notes"])
    done = fedminmax("compare", "synthetic", *SMALL, *words, cwd=tmp_path)
    assert done.returncode == 1
    assert "1 of 3 runs failed" in done.stderr
    assert "Traceback" not in done.stderr
    assert "fedminmax" in done.stdout


def test_status_and_budget(tmp_path: Path) -> None:
    words = ["--methods", "fedminmax,afl", "--settings", "ESG"]
    stopped = compare(*words, "--budget", "0.01s", cwd=tmp_path)
    assert any("not finished" in note for note in stopped["notes"])
    status = fedminmax("compare", "synthetic", *SMALL, *words, "--status", cwd=tmp_path)
    assert status.returncode == 0
    assert "afl" in status.stdout
    finished = compare(*words, cwd=tmp_path)
    assert len(finished["rows"]) == 2
    assert not any("not finished" in note for note in finished["notes"])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--methods", "fedmax"], "method 'fedmax' is unknown"),
        (["--methods", "fedminmax:speed=3"], "fedminmax has no option 'speed'"),
        (["--methods", "fedminmax:min_weight"], "write options as fedminmax:name=value"),
        (["--methods", "fedminmax:min_weight=low"], "expected a number"),
        (["--methods", "afl:start=somewhere"], "expected rows or uniform"),
        (["--methods", "fedminmax:min_weight=0.7"], "min_weight = 0.7 with 2 groups"),
        (["--methods", "fedmgda", "--sums-only"], "needs each site's own update"),
        (["--methods", "afl", "--sums-only"], "needs each site's own loss"),
        (["--settings", "XYZ"], "'XYZ' is unknown"),
    ],
)
def test_mistakes_are_refused_before_the_first_round(
    words: list[str], expected: str, tmp_path: Path
) -> None:
    assert expected in complaint("compare", "synthetic", *words, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []


SHORT = [*("--rounds", "2", "--local-rounds", "1", "--fast-rounds", "3", "--batch-size", "1000")]


def compare_adult(*words: str, cwd: Path) -> dict[str, Any]:
    done = fedminmax("compare", "adult", *SHORT, *words, "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    content: dict[str, Any] = json.loads(done.stdout)
    return content


def test_the_default_table_has_centralized_minmax_once(tmp_path: Path) -> None:
    rows = compare_adult(cwd=tmp_path)["rows"]
    methods = ["fedminmax-fast", "fedminmax", "fedavg", "afl", "qfedavg:q=0.2", "qfedavg:q=5"]
    assert [(row["setting"], row["method"]) for row in rows] == [
        *((setting, method) for setting in ("ESG", "SSG", "PSG") for method in methods),
        ("centralized", "fedminmax"),
    ]
    by_line = {(row["setting"], row["method"]): row for row in rows}
    assert by_line["ESG", "fedminmax"]["gradient_evaluations"] == 2 * 32_561
    assert by_line["ESG", "fedavg"]["gradient_evaluations"] == 32_561
    # Papadaki et al. 2021, Lemma 2: who holds which rows does not matter to FedMinMax.
    for name, settings in (("fedminmax", 4), ("fedminmax-fast", 3)):
        worst = [row["worst"]["mean"] for row in rows if row["method"] == name]
        assert worst == pytest.approx([worst[0]] * settings, abs=1e-5)
    assert len(by_line["PSG", "afl"]["risks"]) == 10
    assert "Male / Asian-Pac-Islander" in by_line["PSG", "afl"]["risks"]
    assert by_line["PSG", "afl"]["opportunity_difference"]["mean"] >= 0.0


def test_quick_is_shorter_and_words_of_the_user_count_more(tmp_path: Path) -> None:
    words = ["--methods", "afl,fedavg", "--settings", "ESG", "--status", "--json"]
    planned = []
    for more in ([], ["--quick"], ["--quick", "--rounds", "7"]):
        done = fedminmax("compare", "adult", *words, *more, cwd=tmp_path)
        planned.append([run["rounds"] for run in json.loads(done.stdout)["runs"]])
    assert planned == [[1500, 100], [300, 30], [7, 30]]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--methods", "fedminmax@XSG"], "setting 'XSG' in 'fedminmax@XSG' is unknown"),
        (["--sites", "7"], "multiple of 10"),
        (["--loss", "hinge"], "hinge"),
        (["--rows", "100"], "--rows"),
    ],
)
def test_mistakes_with_adult_are_refused(words: list[str], expected: str, tmp_path: Path) -> None:
    assert expected in complaint("compare", "adult", *words, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []
