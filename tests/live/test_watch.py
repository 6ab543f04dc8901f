"""What is seen of a run folder while another process writes it."""

import json
import time
from collections.abc import Generator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fedminmax.core.files import held
from fedminmax.live import watch as module
from fedminmax.live.watch import (
    LiveModel,
    LiveRun,
    Stage,
    watch_folder,
    watch_tables,
    without_groups,
    worst_now,
)
from fedminmax.live.watch_network import NewsSoFar, live_run
from fedminmax.network.server.log import News, PlannedJob
from fedminmax.runs.folder import LOCK_FILE, claim_run
from fedminmax.training.round_record import RoundRecord
from tests.training.made_up_rounds import made_up_round

GROUPS = ("women", "men", "two people")
CENSUS = {
    "format": 1,
    "sites": ["north", "south"],
    "groups": GROUPS,
    "small_groups": ["two people"],
    "train": [[60, 240, 2], [0, 500, 0]],
    "test": [[6, 24, 0], [0, 50, 0]],
}
PLANNED = {"format": 1, "key": "fedminmax", "name": "FedMinMax", "rounds": 8}


def line(number: int, first: float = 0.5) -> dict[str, Any]:
    return {
        "round": number,
        "seconds": 2.0 * number,
        "risks": [first, 0.25, 0.99],
        "weights": [0.6, 0.3, 0.1],
        "weights_over": "groups",
        "participants": [0, 1],
        "gradient_evaluations": number,
        "certificate": None,
        "validation_risks": [],
    }


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "census.json").write_text(json.dumps(CENSUS))
    (folder / "planned.json").write_text(json.dumps(PLANNED))
    return folder


def add(run: Path, *lines: dict[str, Any]) -> None:
    with (run / "rounds.jsonl").open("a") as file:
        file.writelines(json.dumps(own) + "\n" for own in lines)


def rounds_of(live: LiveRun) -> list[int]:
    return [record.round for record in live.models[0].rounds]


def test_a_folder_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    source = watch_tables(tmp_path / "later")
    live = next(source)
    assert live.stage is Stage.WAITING
    assert "does not exist yet" in live.message
    (tmp_path / "later").mkdir()
    assert "No run has begun" in next(source).message
    assert next(source).stage is Stage.WAITING
    source.close()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["later"]


def test_rounds_come_as_they_are_written_and_half_a_line_waits(run: Path) -> None:
    with claim_run(run):
        source = watch_tables(run)
        assert next(source).message == "FedMinMax begins."
        add(run, line(1), line(2))
        assert rounds_of(next(source)) == [1, 2]
        whole = json.dumps(line(3)) + "\n"
        with (run / "rounds.jsonl").open("a") as file:
            file.write(whole[:40])
            file.flush()
            assert rounds_of(next(source)) == [1, 2]
            file.write(whole[40:])
        live = next(source)
    assert rounds_of(live) == [1, 2, 3]
    assert live.stage is Stage.RUNNING
    assert live.message == "FedMinMax is being trained: round 3 of 8."
    # Two seconds a round, five rounds to go.
    assert live.models[0].seconds_left == pytest.approx(10.0)


def test_nothing_is_known_of_small_groups_but_their_names(run: Path) -> None:
    add(run, line(1))
    live = next(watch_tables(run))
    assert (live.groups, live.small_groups) == (("women", "men"), ("two people",))
    (record,) = live.models[0].rounds
    assert (record.risks, record.weights) == ((0.5, 0.25), (0.6, 0.3))


def test_a_run_that_goes_back_or_begins_again_is_read_anew(run: Path) -> None:
    add(run, *(line(number) for number in (1, 2, 3, 4)))
    source = watch_tables(run)
    assert rounds_of(next(source)) == [1, 2, 3, 4]
    # As a run that goes on from an earlier checkpoint leaves it: a new file, shorter at first.
    log = run / "rounds.jsonl"
    kept = log.read_text().splitlines(keepends=True)[:2]
    other = log.with_suffix(".partial")
    other.write_text("".join(kept))
    other.replace(log)
    add(run, *(line(number, 0.4) for number in (3, 4, 5)))
    live = next(source)
    assert rounds_of(live) == [1, 2, 3, 4, 5]
    assert [record.risks[0] for record in live.models[0].rounds] == [0.5, 0.5, 0.4, 0.4, 0.4]
    # The same file, written from its beginning, and longer than before.
    log.write_text("")
    add(run, *(line(number, 0.3) for number in range(1, 9)))
    assert [record.risks[0] for record in next(source).models[0].rounds] == [0.3] * 8


def test_without_a_process_and_without_results_it_was_interrupted(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(run, line(1), line(2))
    source = watch_tables(run)
    with claim_run(run):
        assert next(source).stage is Stage.RUNNING
    # Between two runs nobody holds either for a moment.
    assert next(source).stage is Stage.RUNNING
    later = time.monotonic() + module.SECONDS_UNTIL_INTERRUPTED + 1
    monkeypatch.setattr(time, "monotonic", lambda: later)
    live = next(source)
    assert live.stage is Stage.INTERRUPTED
    assert "Interrupted after round 2 of 8 of FedMinMax" in live.message
    with claim_run(run):
        assert next(source).stage is Stage.RUNNING


def test_damage_is_said_and_the_last_state_stays(run: Path) -> None:
    add(run, line(1))
    source = watch_tables(run)
    next(source)
    with (run / "rounds.jsonl").open("a") as file:
        file.write("no round\n")
    live = next(source)
    assert "rounds.jsonl is damaged" in live.notices[0]
    assert rounds_of(live) == [1]


def test_looking_neither_writes_nor_keeps_anybody_out(run: Path) -> None:
    add(run, line(1))
    before = {path: path.read_bytes() for path in run.rglob("*")}
    source = watch_tables(run)
    next(source)
    assert {path: path.read_bytes() for path in run.rglob("*")} == before
    (run / LOCK_FILE).touch()
    next(source)
    with held(run / LOCK_FILE) as ours:
        assert ours


def test_of_several_seeds_the_one_trained_last_is_shown(run: Path) -> None:
    folder = run.parent
    add(run, line(1))
    run.rename(folder / "seed-0")
    assert next(watch_tables(folder)).place == str(folder / "seed-0")


def test_time_left_is_at_the_pace_of_the_last_rounds() -> None:
    def model(*seconds: float) -> LiveModel:
        rounds = [
            RoundRecord.from_json(line(number) | {"seconds": own})
            for number, own in enumerate(seconds, 1)
        ]
        return LiveModel("m", tuple(rounds), planned=50, stage=Stage.RUNNING)

    slow_start = [100.0 + number for number in range(30)]
    assert {late - early for early, late in pairwise(slow_start)} == {1.0}
    assert model(*slow_start).seconds_left == pytest.approx(20.0)
    assert model(3.0).seconds_left == pytest.approx(3.0 * 49)


def test_weights_over_sites_stay_whole() -> None:
    record = RoundRecord.from_json(line(1) | {"weights_over": "sites", "weights": [0.5, 0.5]})
    (shown,) = without_groups([record], GROUPS, ["two people"])
    assert (shown.risks, shown.weights) == ((0.5, 0.25), (0.5, 0.5))


def test_a_round_over_the_network_that_is_done_again_replaces_what_came_after() -> None:
    planned = PlannedJob((("fedminmax", 4),), ("north", "south"))
    first = News(planned, tuple((0, made_up_round(number)) for number in (1, 2, 3)))
    again = News(planned, ((0, made_up_round(2, risks=(0.1, 0.2))),))
    so_far = NewsSoFar().with_news(first).with_news(again)
    assert [entry.round for entry in so_far.rounds[0]] == [1, 2]
    assert so_far.rounds[0][-1].risks == (0.1, 0.2)


def test_over_the_network_time_left_counts_the_baseline_too() -> None:
    planned = PlannedJob((("fedminmax", 4), ("fedavg", 6)), ("north", "south", "west"))
    rounds = tuple((0, made_up_round(number)) for number in (1, 2))
    news = News(planned, rounds, groups=("women", "men"))
    live = live_run("here", NewsSoFar().with_news(news), Stage.RUNNING, "")
    (model,) = live.models
    assert (model.planned, model.rounds_after) == (4, 6)
    later = News(planned, ((1, made_up_round(1)),), groups=("women", "men"))
    both = live_run("here", NewsSoFar().with_news(news).with_news(later), Stage.RUNNING, "")
    assert both.models[-1].rounds_after == 0


def states(source: Generator[LiveRun], number: int) -> list[Stage]:
    return [next(source).stage for _ in range(number)]


def test_a_federation_that_cannot_be_followed_says_why(tmp_path: Path) -> None:
    (tmp_path / "run" / "federation").mkdir(parents=True)
    (tmp_path / "run" / "federation" / "run.json").write_text("{}")
    source = watch_folder(tmp_path / "run", 0.1)
    assert states(source, 1) == [Stage.WAITING]
    assert "run.json is damaged" in next(source).message


def test_where_all_groups_are_tied_nobody_is_called_the_worst(run: Path) -> None:
    """Before training every group has the risk ln 2, but for rounding."""
    tied = line(1) | {"risks": [0.6931471805599453, 0.6931471805599451, 0.99]}
    add(run, tied)
    live = next(watch_tables(run))
    (model,) = live.models
    assert worst_now(model, live.groups) == (None, 0.6931471805599453)
    add(run, line(2))
    (model,) = next(watch_tables(run)).models
    assert worst_now(model, live.groups) == ("women", 0.5)


def test_the_time_left_includes_the_baseline(run: Path) -> None:
    (run / "planned.json").write_text(json.dumps(PLANNED | {"rounds_after": 20}))
    add(run, line(1), line(2), line(3))
    with claim_run(run):
        live = next(watch_tables(run))
    # Two seconds a round, five rounds to go, and twenty of the baseline.
    assert live.models[0].seconds_left == pytest.approx(2.0 * (5 + 20))
    assert live.group_rows == (60, 740)
