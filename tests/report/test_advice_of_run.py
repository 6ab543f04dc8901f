"""What is said of a run's weights and cost once it is done."""

from pathlib import Path

import pytest

from fedminmax.report.advice_figure import mixes_of_run
from fedminmax.report.page import build_report, render_report
from fedminmax.report.read_run import read_run
from fedminmax.runs.advice_text import after_training
from tests.runs.run_folders import write_run

COST = {"bytes_down": 300, "bytes_up": 2_000, "usual_rounds": [8, 12]}


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (0.1, "could also have reached"),
        (0.205, "could nearly have"),
        (0.5, "could not have reached"),
    ],
)
def test_weights_within_reach_of_the_sites_and_beyond(
    share: float, words: str, tmp_path: Path
) -> None:
    """The sites' mixes are (0.2, 0.8) and (0, 1): weights over sites make all between."""
    distance = max(0.0, share - 0.2) * 2**0.5
    reach = {"weights": [share, 1 - share], "distance": distance}
    run = read_run(write_run(tmp_path / "run", reach=reach))
    (said,) = after_training(run.chosen.results)
    assert words in said
    assert f"{100 * share:.3g} % on “women”" in said
    assert "0.42 away" in said or share < 0.5
    assert said in build_report([run]).parts[0].notes
    assert "diamond" in mixes_of_run(run, "mixes").caption


def test_three_groups_are_a_triangle(tmp_path: Path) -> None:
    run = read_run(
        write_run(
            tmp_path / "run",
            before=None,
            after=(0.3, 0.2, 0.1),
            halves=(0.01,) * 3,
            rows=(90, 80, 70),
            groups=("a", "b", "<c>"),
            census=((9, 1, 0), (3, 3, 3)),
            reach={"weights": [0.2, 0.2, 0.6], "distance": 0.3},
        )
    )
    figure = mixes_of_run(run, "mixes")
    assert "Triangle" in figure.description
    assert [line[4] for line in figure.tables[0].lines] == [
        "90 % (north)",
        "33.3 % (south)",
        "33.3 % (south)",
    ]
    assert "weights of FedMinMax</text>" in render_report(build_report([run]), "1")


def test_estimated_and_actual_cost_are_compared(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", cost=COST))
    (said,) = after_training(run.chosen.results)
    assert "took 100 rounds; the estimate was 8 to 12." in said
    assert "2 kB up and 300 bytes down per round, 200 kB up in total" in said
    counted = COST | {"counted_down": 310, "counted_up": 1_500}
    run = read_run(write_run(tmp_path / "other", cost=counted))
    (said,) = after_training(run.chosen.results)
    assert "messages were 1.5 kB up and 310 bytes down per round; expected: 2 kB up" in said
    equal = COST | {"counted_down": COST["bytes_down"], "counted_up": COST["bytes_up"]}
    run = read_run(write_run(tmp_path / "equal", cost=equal))
    (said,) = after_training(run.chosen.results)
    assert "messages were 2 kB up and 300 bytes down per round." in said


def test_runs_of_earlier_versions_say_nothing_of_it(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run"))
    assert after_training(run.chosen.results) == []
    assert "diamond" not in mixes_of_run(run, "mixes").caption
