"""A server whose disk is full: the run stops, says so, and goes on to the same model with room."""

import errno
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from fedminmax.config.planned_runs import PlannedRun
from fedminmax.config.read import read_config
from fedminmax.core import files
from fedminmax.network.server.disk import RESERVE_BYTES, cannot_save
from fedminmax.network.server.run import (
    OUTCOME_FILE,
    publish_results,
    read_members,
    read_outcome,
    run_folder,
    run_plan,
)
from fedminmax.network.wire.plan import NetworkPlan
from fedminmax.training.checkpoint import checkpoint_paths
from fedminmax.training.round_record import ROUNDS_FILE
from tests.network.network_problem import (
    DirectTransport,
    plan_of,
    simulated_members,
    write_tables,
)

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
