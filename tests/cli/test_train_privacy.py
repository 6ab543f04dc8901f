"""A privacy guarantee in a configuration: what it says at the end, its ledger, and refusals."""

import json
from pathlib import Path

import pytest

from fedminmax.config.read import read_config
from fedminmax.core.privacy.mechanism import noise_multiplier
from fedminmax.runs.train import open_training, training_rounds
from tests.cli.command import complaint_here, run_here
from tests.cli.hospitals import results_of, rounds_of, write_config, write_hospitals

RUN = Path("runs", "fedminmax")
FAST = 'name = "fedminmax-fast"\nrounds = 4'
PROMISE = "epsilon = 4.0\ndelta = 1e-4"


@pytest.fixture
def hospitals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_hospitals(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def private(
    folder: Path, promise: str = PROMISE, method: str = FAST, name: str = "fedminmax"
) -> Path:
    return write_config(folder, method=f"{method}\n[privacy]\n{promise}", name=name)


def ledger() -> list[dict[str, object]]:
    lines = Path("fedminmax-privacy.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_a_run_states_its_promise_and_spends_it_once(
    hospitals: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = private(hospitals, f"{PROMISE}\nlimit = 6.0")
    interrupted = training_rounds(open_training(read_config(config), RUN), seconds=0.0)
    for _ in interrupted:
        pass
    assert 1 <= len(rounds_of(RUN)) < 4
    assert len(ledger()) == 1
    key = RUN / "noise.key"
    assert key.stat().st_mode & 0o077 == 0
    first = rounds_of(RUN)
    run_here("train", config)
    # The run went on with the noise it had begun with, and spent nothing more.
    assert rounds_of(RUN)[: len(first)] == first
    assert len(rounds_of(RUN)) == 4
    assert len(ledger()) == 1
    assert not key.exists()
    said = results_of(RUN)["privacy"]
    assert (said["epsilon"], said["delta"], said["unit"]) == (4.0, 1e-4, "row")
    assert said["releases"] == 5
    assert said["noise_multiplier"] == noise_multiplier(4.0, 1e-4, 5)
    assert said["spent"] == pytest.approx(4.0, rel=5e-3)
    run_here("report", RUN, "--out", "report.html")
    words = "(epsilon, delta) = (4, 0.0001) for one training record"
    said_there = " ".join(capsys.readouterr().out.split())
    card = (RUN / "model_card.md").read_text()
    for shown in (said_there, card, Path("report.html").read_text()):
        assert words in shown
        assert "Not covered by it: test results" in shown
    # A second model of the same rows is above their limit.
    again = complaint_here(capsys, "train", config, "--out", "second")
    assert "limit = 6: earlier runs on these files spent epsilon 4" in again
    assert not Path("second").exists()
    assert len(ledger()) == 1


def test_a_run_that_ends_before_its_results_are_written_keeps_its_noise(
    hospitals: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would begin again, with other noise, and spend the budget twice."""
    config = private(hospitals)

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("fedminmax.runs.assemble.write_results", full_disk)
        with pytest.raises(OSError, match="No space left"):
            for _ in training_rounds(open_training(read_config(config), RUN)):
                pass
    rounds = rounds_of(RUN)
    run_here("train", config)
    assert rounds_of(RUN) == rounds
    assert len(ledger()) == 1
    assert not (RUN / "noise.key").exists()


def test_noise_is_not_that_of_the_seed(hospitals: Path) -> None:
    """Whoever knows the configuration must not be able to take it off."""
    config = private(hospitals)
    run_here("train", config)
    run_here("train", config, "--out", "again")
    assert rounds_of(RUN)[0]["risks"] != rounds_of(Path("again"))[0]["risks"]
    assert len(ledger()) == 2


@pytest.mark.parametrize(
    ("promise", "method", "words"),
    [
        ("epsilon = 0.0\ndelta = 1e-4", FAST, "[privacy] epsilon is 0.0; give a number greater"),
        ("epsilon = 1.0\ndelta = 0.0", FAST, "[privacy] delta is 0.0; give a number greater"),
        ("epsilon = 1.0\ndelta = 0.5", FAST, "delta = 0.5, but there are"),
        (f"{PROMISE}\nclip = 0.0", FAST, "[privacy] clip is 0.0; give a number greater"),
        (f'{PROMISE}\nunit = "town"', FAST, "[privacy] unit is 'town'; give 'row' or 'site'"),
        (f"{PROMISE}\ncolluding = 9", FAST, "colluding = 9, but there are"),
        (PROMISE, f"{FAST}\ncertify = true", "a certificate needs sums without noise"),
        (PROMISE, f"{FAST}\ncurvature = true", "curvature sums cannot keep the promise"),
        (PROMISE, f'{FAST}\nbaseline = "fedavg"', "a second model would spend the budget"),
        (PROMISE, f"{FAST}\nparticipation = 0.5", "counts on the noise of all sites"),
        (PROMISE, 'name = "fedavg"', 'FedAvg cannot keep a privacy guarantee with unit = "row"'),
        (PROMISE, 'name = "afl"', "AFL cannot keep a privacy guarantee"),
    ],
)
def test_what_cannot_be_promised_is_refused_before_anything_is_written(
    promise: str, method: str, words: str, hospitals: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in complaint_here(capsys, "train", private(hospitals, promise, method))
    assert not Path("runs").exists()
    assert not Path("fedminmax-privacy.jsonl").exists()


def test_validation_rows_and_certificates_are_refused_on_the_command_line(
    hospitals: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = private(hospitals)
    for words, reason in (
        (("--set", "data.validation=0.2"), "losses on validation rows are not covered"),
        (("--certify",), "a certificate needs sums without noise"),
    ):
        assert reason in complaint_here(capsys, "train", config, *words)


def test_groups_that_one_row_can_merge_are_refused(
    hospitals: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = private(hospitals)
    config.write_text(config.read_text().replace("[groups]", '[groups]\nsmall = "merge"', 1))
    assert "one row can decide which groups are merged" in complaint_here(capsys, "train", config)


def test_warnings_about_rows_stay_on_the_screen_and_noise_is_no_verdict(
    hospitals: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One outlier would otherwise show in the folder, and its line vanish with the record."""
    text = (hospitals / "north.csv").read_text().splitlines()
    text[7] = ",".join(["90000", *text[7].split(",")[1:]])
    (hospitals / "north.csv").write_text("\n".join(text) + "\n")
    run_here("train", private(hospitals))
    said = " ".join(capsys.readouterr().err.split())
    assert "'age' in 1 row of" in said
    assert "(first: row 7)" in said
    results = results_of(RUN)
    assert (results["warnings"], results["notes"]) == ([], [])
    assert results["convergence"] is None
    assert not (RUN / "held_out.json").exists()
    card = (RUN / "model_card.md").read_text()
    assert "row 7" not in card
    assert "Noise hides whether" in card
    for word in ("still rises", "still falls", "has not converged", "distort"):
        assert word not in card


def test_without_a_promise_the_folder_names_columns_but_no_row(hospitals: Path) -> None:
    text = (hospitals / "north.csv").read_text().splitlines()
    text[7] = ",".join(["90000", *text[7].split(",")[1:]])
    (hospitals / "north.csv").write_text("\n".join(text) + "\n")
    run_here("train", write_config(hospitals, method=FAST))
    (warning,) = [line for line in results_of(RUN)["warnings"] if "distort" in line]
    assert warning.endswith("'age'")
    assert "row 7" not in (RUN / "model_card.md").read_text()
