"""What a run proves, from the first round to the report: in words, and as numbers."""

import json
from pathlib import Path

import pytest

from tests.cli.command import complaint_here, run_here
from tests.cli.hospitals import results_of, rounds_of, write_config, write_hospitals

RUN = Path("runs", "fedminmax")
FAST = 'name = "fedminmax-fast"\nrounds = 40\nbaseline = "none"\ntolerance = 0.0'
LOGISTIC = 'kind = "logistic"\nloss = "cross_entropy"\nridge = 1e-2'


@pytest.fixture
def hospitals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_hospitals(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_stops_at_its_gap_and_says_what_is_proved(
    hospitals: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(hospitals, model=LOGISTIC, method=FAST)
    run_here("train", config, "--set", "method.optimality_gap=0.05")
    said = " ".join(capsys.readouterr().out.split())
    first, lines = results_of(RUN), rounds_of(RUN)
    proof, gaps = first["proof"], [line["remaining"] for line in lines]
    assert len(lines) == first["method"]["rounds"] < 40
    assert gaps[-1] == first["gap_left"] <= 0.05 < min(gaps[:-1])
    assert proof["lower"] <= proof["upper"]
    assert (proof["upper"] - proof["lower"]) / proof["upper"] == pytest.approx(gaps[-1])
    # The best round's risks are those without the penalty.
    worst = min(max(line["risks"]) for line in lines)
    assert proof["upper"] - proof["penalty"] == pytest.approx(worst, abs=1e-3)
    words = "Certified: no logistic model on these features"
    assert "another logistic model on these features could lower the highest training risk" in said
    card = (RUN / "model_card.md").read_text()
    assert words in card
    assert "Training considered cross-entropy by group and nothing else" in card
    assert "returned model: chosen by the method among the rounds' models" in card
    run_here("report", RUN, "--out", "report.html", "--appendix")
    assert words in Path("report.html").read_text()

    run_here("train", config, "--set", "method.optimality_gap=0.05")
    assert rounds_of(RUN) == lines
    run_here("train", config)
    assert rounds_of(RUN)[: len(lines)] == lines
    assert results_of(RUN)["gap_left"] <= 1e-4
    assert results_of(RUN)["convergence"]["converged"] is True


def test_a_run_in_excess_says_what_of_a_risk_is_avoidable(
    hospitals: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    method = 'name = "fedminmax-fast"\nrounds = 40\nobjective = "excess"'
    run_here("train", write_config(hospitals, model=LOGISTIC, method=method))
    said = " ".join(capsys.readouterr().out.split())
    own, words = results_of(RUN)["own_risks"], "no model of this kind is known to remove"
    if own["plain"] == own["own"]:
        words = "nothing of the groups' training risk is known to be avoidable"
    assert words in said
    assert words in (RUN / "model_card.md").read_text()
    run_here("report", RUN, "--out", "report.html")
    assert words in Path("report.html").read_text()


def test_algorithm_1_is_certified_after_its_run(
    hospitals: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its worst risk is above the bound, which is the one that fedminmax-fast proves."""
    plain = 'rounds = 30\nbaseline = "none"'
    run_here("train", write_config(hospitals, model=LOGISTIC, method=plain))
    assert "proof" not in results_of(RUN)
    lines = rounds_of(RUN)
    run_here("train", "fedminmax.toml", "--certify")
    assert "logistic model on these features" in " ".join(capsys.readouterr().out.split())
    proof = results_of(RUN)["proof"]
    assert rounds_of(RUN) == lines
    fast = write_config(hospitals, model=LOGISTIC, method=FAST, name="fast")
    run_here("train", fast)
    best = results_of(Path("runs", "fast"))["proof"]
    assert best["lower"] * (1 - 1e-4) <= proof["lower"] <= best["upper"] <= proof["upper"]


def test_a_minimax_over_sites_proves_the_worst_site_and_groups_only_if_asked(
    hospitals: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    over_sites = FAST.replace("fedminmax-fast", "afl-fast")
    config = write_config(hospitals, model=LOGISTIC, method=over_sites)
    run_here("train", config)
    said = " ".join(capsys.readouterr().out.split())
    assert "bring the worst site's training risk (cross-entropy) below" in said
    assert "AFLFast (" in said
    own = results_of(RUN)
    assert own["proof"]["players"] == "site"
    assert own["method"]["rounds"] < 40
    run_here("train", config, "--certify")
    assert "training risk of a group" in " ".join(capsys.readouterr().out.split())
    asked = results_of(RUN)["proof"]
    assert asked["players"] == "group"
    worst = min(max(line["risks"]) for line in rounds_of(RUN))
    assert asked["lower"] < worst + asked["penalty"]
    run_here("train", config)
    assert results_of(RUN)["proof"] == asked


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ('kind = "mlp"\nhidden = [3]', "a network's risk is not convex"),
        ('kind = "logistic"\nridge = 1e-4', "the Brier loss of a softmax is not convex"),
        ('kind = "logistic"\nloss = "cross_entropy"', "without a ridge there is no useful bound"),
    ],
)
def test_what_cannot_be_certified_is_refused_before_the_first_round(
    hospitals: Path, capsys: pytest.CaptureFixture[str], model: str, words: str
) -> None:
    config = write_config(hospitals, model=model)
    assert words in complaint_here(capsys, "train", config, "--certify")
    assert not RUN.exists()


def test_a_mixture_is_refused_before_the_first_round(
    hospitals: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mixing = 'name = "minimax-fair"\nrounds = 60\ncertify = true'
    complaint = complaint_here(
        capsys, "train", write_config(hospitals, "ill", model=LOGISTIC, method=mixing)
    )
    assert "a mixture of up to 2 models, but proofs are about single models" in complaint
    assert not RUN.exists()


def test_a_method_that_returns_one_of_its_fits_is_certified(hospitals: Path) -> None:
    one = 'name = "ap-star"\nrounds = 60\ncertify = true'
    run_here("train", write_config(hospitals, "ill", model=LOGISTIC, method=one))
    assert results_of(RUN)["proof"]["lower"] > 0.0


def test_regression_is_proved_after_one_round_in_the_unit_of_its_target(hospitals: Path) -> None:
    config = write_config(
        hospitals, "cost", model='kind = "linear"\nridge = 1e-4', method=FAST, data="held_out = 0"
    )
    run_here("train", config)
    (line,) = rounds_of(RUN)
    # Costs are 1000 +- 200 per unit of noise: squared errors are tens of thousands.
    assert 10_000 < line["certificate"]["lower"] < 100_000
    # Parameters in single precision.
    assert results_of(RUN)["gap_left"] < 1e-7


def test_brier_says_why_nothing_is_proved(
    hospitals: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = 'kind = "logistic"\nloss = "brier"'
    run_here("train", write_config(hospitals, model=model, method=FAST.replace("40", "3")))
    assert "the Brier loss of a softmax is not convex" in capsys.readouterr().out.replace("\n", " ")
    assert "proof" not in json.loads((RUN / "results.json").read_text())
