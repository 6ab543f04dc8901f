"""A folder is one configuration's, whoever comes first; a run is one process's at a time.

In Python and on the command line, a configuration trains to the same files and numbers.
"""

import json
import multiprocessing
from dataclasses import replace
from pathlib import Path

import pytest

import fedminmax
from fedminmax.core.errors import InputError
from fedminmax.data import read_config
from fedminmax.findings.records import record_as_json
from fedminmax.runs.folder import claim_folder, claim_run
from tests.cli.command import run_here
from tests.cli.hospitals import results_of, rounds_of, write_config, write_hospitals
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


RIDGE = 'kind = "logistic"\nloss = "cross_entropy"\nridge = 1e-2'


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_hospitals(tmp_path)
    monkeypatch.chdir(tmp_path)
    return write_config(tmp_path, model=RIDGE, method="rounds = 3")


def test_python_does_what_the_command_does(config: Path) -> None:
    run_here("train", config, "--out", "by_command", "--rounds", "4", "--certify")
    done = fedminmax.train_tables(str(config), folder="by_python", rounds=4, certify=True)
    for part in (".", "baseline"):
        one, other = (Path(name, part) for name in ("by_command", "by_python"))
        model = "model.safetensors"
        assert (one / model).read_bytes() == (other / model).read_bytes()
        assert results_of(one) == results_of(other)
        assert rounds_of(one) == rounds_of(other)
        assert (one / "config.toml").read_bytes() == config.read_bytes()
    assert done.folder == Path("by_python")
    assert done.certificate is not None
    assert done.certificate.lower == results_of(done.folder)["proof"]["lower"]
    assert done.results.method.rounds == 4
    assert done.results.change is not None
    assert done.baseline is not None
    assert done.baseline.method.key == "fedavg"
    assert done.model.predict("later.csv").tolist() == (
        fedminmax.load_model("by_command").predict("later.csv").tolist()
    )


def test_without_a_folder_no_file_is_left_and_another_call_goes_on_in_one(config: Path) -> None:
    before = set(Path().iterdir())
    alone = fedminmax.train_tables(config)
    assert alone.folder is None
    assert set(Path().iterdir()) == before
    fedminmax.train_tables(config, folder="run", rounds=2)
    further = fedminmax.train_tables(read_config(str(config)), folder="run")
    shown = [record_as_json(own.results) | {"seconds": 0} for own in (alone, further)]
    assert shown[0] == shown[1]


def test_another_seed_is_in_the_folders_configuration(config: Path) -> None:
    changed = replace(read_config(config), seed=5)
    one = fedminmax.train_tables(changed, folder="changed")
    other = fedminmax.train_tables(config, seed=5)
    assert one.results.test == other.results.test
    assert read_config("changed/config.toml").seed == 5
    by_hand = replace(changed, text="")
    assert "give what read_config read, or no folder" in complaint_of(
        lambda: fedminmax.train_tables(by_hand, folder="by_hand")
    )
    assert fedminmax.train_tables(by_hand).results.test == other.results.test


def test_a_missing_file_is_refused_in_one_line() -> None:
    message = complaint_of(lambda: fedminmax.train_tables("nowhere.toml"))
    assert message == "nowhere.toml does not exist; write one with 'fedminmax init'"
