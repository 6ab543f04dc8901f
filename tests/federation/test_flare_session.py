"""What the coordinator fetched stays until something else takes its place."""

from pathlib import Path

import pytest

from fedminmax.federation.flare_server import RESULTS_FOLDER
from fedminmax.federation.flare_session import fetch_results


class MadeUpSession:
    """As much of a connection as fetching needs; a job leaves these files."""

    def __init__(self, left: dict[str, str] | None) -> None:
        self._left = left

    def download_job_result(self, job: str, destination: str) -> str:
        location = Path(destination) / job
        location.mkdir()
        if self._left is not None:
            results = location / "workspace" / RESULTS_FOLDER
            results.mkdir(parents=True)
            for name, text in self._left.items():
                (results / name).write_text(text)
        return str(location)


class LostSession:
    """A connection that ends in the middle."""

    def download_job_result(self, job: str, destination: str) -> str:
        (Path(destination) / job).mkdir()
        raise ConnectionError


def test_results_take_the_place_of_earlier_ones(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    assert fetch_results(MadeUpSession({"a": "1", "b": "1"}), "job-1", folder)
    assert fetch_results(MadeUpSession({"a": "2"}), "job-2", folder)
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"a": "2"}
    assert list(tmp_path.iterdir()) == [folder]


def test_a_job_that_left_nothing_takes_nothing_away(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    assert not fetch_results(MadeUpSession(None), "job-0", folder)
    assert not folder.exists()
    assert fetch_results(MadeUpSession({"a": "1"}), "job-1", folder)
    assert not fetch_results(MadeUpSession(None), "job-2", folder)
    with pytest.raises(ConnectionError):
        fetch_results(LostSession(), "job-3", folder)
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"a": "1"}
