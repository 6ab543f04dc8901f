"""A folder is one configuration's, whoever comes first; a run is one process's at a time."""

import json
import multiprocessing
from pathlib import Path

import pytest

from fedminmax.core.errors import InputError
from fedminmax.runs.folder import claim_folder, claim_run
from tests.complaints import complaint_of


def claim_as(folder: Path, seed: int) -> bool:
    try:
        claim_folder(folder, {"seed": seed})
    except InputError:
        return False
    return True


def test_of_many_first_calls_with_different_configurations_one_kind_wins(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    # Two at once are enough for a race; each takes seconds of imports.
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        claimed = pool.starmap(claim_as, [(folder, seed % 2) for seed in range(40)])
    winner = json.loads((folder / "config.json").read_text())["seed"]
    assert claimed == [seed % 2 == winner for seed in range(40)]
    assert [path.name for path in folder.iterdir()] == ["config.json"]


@pytest.mark.parametrize("content", ["[]", "{", ""])
def test_a_damaged_configuration_is_told(content: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(content)
    assert "damaged" in complaint_of(lambda: claim_folder(tmp_path, {"seed": 0}))


def test_what_a_crash_left_beside_does_not_block_the_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json.123.partial").write_text("{")
    claim_folder(tmp_path, {"seed": 0})
    claim_folder(tmp_path, {"seed": 0})


def test_a_run_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    with claim_run(tmp_path) as first, claim_run(tmp_path) as second:
        assert (first, second) == (True, False)
    with claim_run(tmp_path) as again:
        assert again


def test_long_differences_are_cut_in_the_complaint(tmp_path: Path) -> None:
    claim_folder(tmp_path, {"features": [f"column {number}" for number in range(90)], "seed": 0})
    said = complaint_of(lambda: claim_folder(tmp_path, {"features": ["a"], "seed": 1}))
    assert "features is ['column 0', " in said
    assert "... there and ['a'] here; seed is 0 there and 1 here" in said
    assert len(said) < 400
