"""`fedminmax compare adult`: no network, Centralized MinMax in its own setting alone, --quick."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import complaint, fedminmax

SHORT = [*("--rounds", "2", "--local-rounds", "1", "--fast-rounds", "3", "--batch-size", "1000")]


def compare(*words: str, cwd: Path) -> dict[str, Any]:
    done = fedminmax("compare", "adult", *SHORT, *words, "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    content: dict[str, Any] = json.loads(done.stdout)
    return content


def test_the_default_table_has_centralized_minmax_once(tmp_path: Path) -> None:
    rows = compare(cwd=tmp_path)["rows"]
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
def test_mistakes_are_refused_before_the_first_round(
    words: list[str], expected: str, tmp_path: Path
) -> None:
    assert expected in complaint("compare", "adult", *words, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []
