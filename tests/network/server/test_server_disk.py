"""A server whose disk is full: the run stops, says so, and goes on to the same model with room.

News of a run: the new rounds alone, from files that are long or just being written.
"""

import errno
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from fedminmax.config.planned_runs import PlannedRun
from fedminmax.config.read import read_config
from fedminmax.core import files
from fedminmax.core.noise import Unit
from fedminmax.core.privacy.mechanism import Privacy
from fedminmax.network.server.agreement import AGREEMENT_FILE
from fedminmax.network.server.log import (
    BYTES_OF_LAST_ROUNDS,
    NOTICE_FILE,
    News,
    PlannedJob,
    ProgressReporter,
    news_as_json,
    news_from_json,
    read_last_rounds,
    run_folder,
)
from fedminmax.network.server.run import (
    OUTCOME_FILE,
    RESERVE_BYTES,
    cannot_save,
    publish_results,
    read_members,
    read_outcome,
    run_plan,
)
from fedminmax.network.wire.plan import NetworkPlan
from fedminmax.training.checkpoint import checkpoint_paths
from fedminmax.training.round_record import ROUNDS_FILE, RoundRecord, read_rounds
from tests.complaints import complaint_of
from tests.network.network_problem import (
    DirectTransport,
    plan_of,
    simulated_members,
    write_tables,
)
from tests.training.made_up_rounds import made_up_round

FULL = (
    "the server cannot save: its disk is full (No space left on device); free space there and "
    "resume the run: everything saved is kept, and it continues after its last saved round"
)


class SmallDisk:
    """A folder that has no room for more than its capacity, as far as whole files go."""

    def __init__(self, folder: Path, capacity: int) -> None:
        self.folder = folder
        self.capacity = capacity
        folder.mkdir()

    @property
    def used(self) -> int:
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())

    @property
    def ballast(self) -> Path:
        return self.folder / "ballast"

    def fill(self) -> None:
        self.ballast.write_bytes(bytes(self.capacity - self.used))

    def sync(self, path: Path) -> None:
        if path.is_relative_to(self.folder) and self.used > self.capacity:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallDisk:
    small = SmallDisk(tmp_path / "disk", 3 * RESERVE_BYTES)
    monkeypatch.setattr(files, "_sync", small.sync)
    return small


class FillingTransport(DirectTransport):
    """Somebody fills the disk while the sites work at their second round."""

    def __init__(self, folder: Path, disk: SmallDisk) -> None:
        super().__init__(folder)
        self._disk = disk
        self._asked = 0

    def answer(self, site: str, endpoint: str, payload: Mapping[str, object]) -> object:
        self._asked += endpoint == "answer"
        if self._asked == 4 and not self._disk.ballast.exists():
            self._disk.fill()
        return super().answer(site, endpoint, payload)


class NobodyThere(DirectTransport):
    """Nobody may be asked."""

    def answer(self, site: str, endpoint: str, payload: Mapping[str, object]) -> object:
        pytest.fail(f"{site} was asked: {endpoint} {list(payload)}")


def job(folder: Path) -> NetworkPlan:
    config = read_config(write_tables(folder))
    return plan_of(config, [PlannedRun("fedminmax", {}, 3)])


def names_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_disk_without_any_room_is_told_of_and_the_run_goes_on_later(
    tmp_path: Path, disk: SmallDisk
) -> None:
    plan, run, results = job(tmp_path), disk.folder / "run", disk.folder / "results"
    outcome = run_plan(plan, FillingTransport(tmp_path, disk), run)
    assert outcome.error == FULL
    assert read_outcome(run) == outcome
    # As much as it takes to tell the coordinator.
    assert publish_results(run, outcome, results) == outcome
    assert read_outcome(results) == outcome
    own = run_folder(run, plan, 0).name
    assert names_in(results) == {OUTCOME_FILE, f"{own}/{ROUNDS_FILE}"}
    disk.ballast.unlink()
    assert run_plan(plan, DirectTransport(tmp_path), run).error is None
    members = read_members(run_folder(run, plan, 0))
    assert torch.equal(members, simulated_members(tmp_path, plan, 0, fused=False))


def test_a_run_asks_nobody_if_there_is_no_room_to_begin_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_bytes(path: Path, _: bytes) -> int:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), str(path))

    plan = job(tmp_path)
    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    outcome = run_plan(plan, NobodyThere(tmp_path), tmp_path / "run")
    assert outcome.error is not None
    assert "its disk is full (Disk quota exceeded)" in outcome.error


def test_results_that_the_engine_could_not_copy_are_not_handed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, run, results = job(tmp_path), tmp_path / "run", tmp_path / "results"
    outcome = run_plan(plan, DirectTransport(tmp_path), run)
    kept = names_in(run)
    with monkeypatch.context() as full:
        full.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
        assert publish_results(run, outcome, results).error == FULL
    assert names_in(results) == {OUTCOME_FILE}
    assert names_in(run) == kept
    # Nothing that only the server needs travels.
    shutil.rmtree(results)
    assert publish_results(run, outcome, results) == outcome
    _, previous = checkpoint_paths(run_folder(run, plan, 0))
    assert names_in(results) == kept - {"claim", str(previous.relative_to(run))}
    assert previous.exists()


def test_another_trouble_with_a_disk_is_not_called_full() -> None:
    error = OSError(errno.EROFS, os.strerror(errno.EROFS))
    assert cannot_save(error).startswith("the server cannot save (Read-only file system); fix")


ROUNDS = [
    made_up_round(1),
    made_up_round(2, risks=(None, 0.25), refused={"south": "south is not connected"}),
    made_up_round(3),
]


def write(path: Path, rounds: list[RoundRecord]) -> Path:
    path.write_text("".join(json.dumps(asdict(entry)) + "\n" for entry in rounds))
    return path


def test_all_rounds_of_a_short_file_come_back(tmp_path: Path) -> None:
    path = write(tmp_path / ROUNDS_FILE, ROUNDS)
    assert read_last_rounds(path) == read_rounds(path) == ROUNDS
    assert read_last_rounds(tmp_path / "nothing.jsonl") == []


def test_of_a_long_file_only_the_end_is_read(tmp_path: Path) -> None:
    many = [made_up_round(number) for number in range(1, 4001)]
    path = write(tmp_path / ROUNDS_FILE, many)
    assert path.stat().st_size > 3 * BYTES_OF_LAST_ROUNDS
    found = read_last_rounds(path)
    assert found == many[-len(found) :]
    # All lines that lie wholly within the end, of about 250 bytes each.
    size = len(json.dumps(asdict(many[-1]))) + 1
    assert BYTES_OF_LAST_ROUNDS // size - 1 <= len(found) < len(many)


@pytest.mark.parametrize("missing", [1, 2, 100])
def test_a_line_that_is_being_written_waits_for_its_end(missing: int, tmp_path: Path) -> None:
    path = write(tmp_path / ROUNDS_FILE, ROUNDS)
    path.write_bytes(path.read_bytes()[:-missing])
    assert read_last_rounds(path) == read_rounds(path) == ROUNDS[:2]


@pytest.mark.parametrize("line", ["{}", "[]", "3", "{", '{"round": 1}'])
def test_damage_is_a_mistake_in_one_line(line: str, tmp_path: Path) -> None:
    path = write(tmp_path / ROUNDS_FILE, ROUNDS)
    path.write_text(line + "\n" + path.read_text())
    assert "is damaged" in complaint_of(lambda: read_last_rounds(path))


def test_news_are_the_rounds_that_were_not_seen(tmp_path: Path) -> None:
    config = read_config(write_tables(tmp_path))
    plan = plan_of(config, [PlannedRun("fedminmax", {}, 3), PlannedRun("fedavg", {}, 2)])
    folder = tmp_path / "run"
    desk = ProgressReporter(plan, folder)
    planned = PlannedJob((("fedminmax", 3), ("fedavg", 2)), plan.sites)
    assert desk.collect([0, 0]) == News(planned)
    run_plan(plan, DirectTransport(tmp_path), folder)
    every = [
        (number, entry)
        for number in range(2)
        for entry in read_rounds(run_folder(folder, plan, number) / ROUNDS_FILE)
    ]
    assert len(every) == 5
    first = desk.collect([0, 0])
    assert list(first.rounds) == every
    assert first.groups == ("Female", "Male")
    assert first.notice is None
    assert list(desk.collect([2, 0]).rounds) == every[2:]
    assert list(desk.collect([3, 2]).rounds) == []
    # A coordinator of fewer runs hears of no others.
    assert list(desk.collect([0]).rounds) == every[:3]
    (folder / NOTICE_FILE).write_text("waits for west")
    assert desk.collect([3, 2]) == replace(first, rounds=(), notice="waits for west")
    # What was agreed on stays, and is not read again; nor are rounds that were seen.
    (folder / AGREEMENT_FILE).unlink()
    path = run_folder(folder, plan, 0) / ROUNDS_FILE
    first_line = path.read_text().splitlines()[0]
    path.write_text(path.read_text().replace(first_line, "no longer a round"))
    assert desk.collect([2, 2]) == replace(first, rounds=tuple(every[2:3]), notice="waits for west")


def test_news_come_back_from_json_as_they_were() -> None:
    promise = Privacy(epsilon=2.0, delta=1e-5, clip=1.0, rounds=20, unit=Unit.SITE)
    promised = PlannedJob((("fedminmax", 20),), ("north",), 3, promise)
    plain = replace(promised, threshold=None, privacy=None)
    for news in (
        News(plain, tuple(enumerate(ROUNDS)), ("Female", "Männer"), "waits"),
        News(promised),
    ):
        assert news_from_json(json.loads(json.dumps(news_as_json(news)))) == news


@pytest.mark.parametrize(
    "content",
    [
        {"rounds": 3},
        {"groups": "Female"},
        {"rounds": [[0, {"round": 1}]]},
        {"rounds": [[0, asdict(ROUNDS[0]) | {"risks": ["low"]}]]},
    ],
)
def test_other_news_are_a_mistake_in_one_line(content: dict[str, object]) -> None:
    assert "another version" in complaint_of(lambda: news_from_json(content))
