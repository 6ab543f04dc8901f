"""In Python and on the command line, a configuration trains to the same files and numbers."""

from dataclasses import replace
from pathlib import Path

import pytest

import fedminmax
from fedminmax.data import read_config
from fedminmax.findings.records import record_as_json
from tests.cli.hospitals import results_of, rounds_of, write_config, write_hospitals
from tests.cli.in_process import run_here
from tests.complaints import complaint_of

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
