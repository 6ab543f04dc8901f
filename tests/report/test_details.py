"""What every report answers, also where the answer is that nothing is known."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedminmax.findings.training import why_not_certified
from fedminmax.report.details import Detail, details_of
from fedminmax.report.read_run import Run, read_run
from tests.runs.run_folders import FALLING, write_run

LOGISTIC: dict[str, Any] = {
    "model": {"kind": "logistic", "hidden": [], "members": 1},
    "loss": "cross_entropy",
}
CLOSE = {"upper": 0.5, "lower": 0.49996, "penalty": 0.01, "ridge": 1e-4}
# Every group has a site of its own, a second one, and rows in plenty.
PLENTY = ((600, 600), (600, 0), (0, 600))
THREE = ("north", "south", "west")


def run_of(folder: Path, **changed: Any) -> Run:
    return read_run(write_run(folder / "run", **changed))


def could_be_better(run: Run, *, appendix: bool = False) -> Detail:
    """The answer, or the appendix that has the certificate in full."""
    name = "appendix" if appendix else "better"
    return next(one for one in details_of(run, "run", appendix=True) if one.name == name)


def what_would_help(run: Run) -> tuple[str, ...]:
    return could_be_better(run).points


@pytest.mark.parametrize(
    ("proof", "start", "size"),
    [(CLOSE, "No.", "0.008%"), (CLOSE | {"lower": 0.4}, "Perhaps.", "20%")],
)
def test_a_proof_is_said_in_words(
    proof: dict[str, float], start: str, size: str, tmp_path: Path
) -> None:
    """The gap is (upper - lower) / upper, by the definition of the certificate, rounded up."""
    run = run_of(tmp_path, **LOGISTIC, proof=proof)
    assert could_be_better(run).answer.startswith(start)
    assert size in could_be_better(run).answer
    assert any(text.startswith("Certified: ") for text in could_be_better(run, appendix=True).texts)


def test_a_proof_about_sites_proves_nothing_of_groups(tmp_path: Path) -> None:
    run = run_of(tmp_path, **LOGISTIC, proof=CLOSE | {"players": "site"})
    assert could_be_better(run).answer == "That is not known."
    assert any("worst site's" in text for text in could_be_better(run, appendix=True).texts)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({}, "a network's risk is not convex"),
        (LOGISTIC | {"loss": "brier"}, "is not convex in the parameters"),
        (LOGISTIC, "FedMinMax gives none"),
    ],
)
def test_without_a_proof_the_reason_is_given(
    changed: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    run = run_of(tmp_path, **changed)
    found = could_be_better(run)
    assert found.answer == "That is not known."
    assert reason in found.texts[0]
    assert found.texts[0] == why_not_certified(run.chosen.results)


def test_a_group_that_is_worse_on_other_rows_needs_more_rows(tmp_path: Path) -> None:
    """Training risk 0.30 of the worst group, and 0.40 +- 0.03 on test rows."""
    run = write_run(tmp_path / "run")
    path = run / "rounds.jsonl"
    # The folder's training risks are its test risks; make those of training lower.
    other = write_run(tmp_path / "other", after=(0.2, 0.2))
    path.write_text((other / "rounds.jsonl").read_text())
    first = what_would_help(read_run(run))[0]
    assert first.startswith("More records of “women”")
    same = what_would_help(read_run(write_run(tmp_path / "same")))[0]
    assert same.startswith("Other features, or another kind of model")


def test_more_rounds_come_first_where_training_has_not_converged(tmp_path: Path) -> None:
    found = what_would_help(run_of(tmp_path, convergence=FALLING))
    assert found[0].startswith("More rounds: FedMinMax has not converged")


def test_the_adviser_has_its_say(tmp_path: Path) -> None:
    census = ((60, 240), (0, 7))
    reasons = what_would_help(run_of(tmp_path, census=census))
    assert any("Only one site has “women”" in reason for reason in reasons)
    few = what_would_help(run_of(tmp_path / "few", census=((20, 240), (0, 7))))
    assert any("“women” has fewer than 30 training records" in reason for reason in few)


def test_where_nothing_stands_out_that_is_said(tmp_path: Path) -> None:
    run = run_of(tmp_path, **LOGISTIC, census=PLENTY, site_names=THREE)
    (only,) = what_would_help(run)
    assert only.startswith("Nothing stands out")


def test_a_certificate_of_the_highest_risk_is_not_told_of_a_group_without_weight(
    tmp_path: Path,
) -> None:
    folder = write_run(tmp_path / "run", **LOGISTIC, proof=CLOSE)
    (first, *_) = what_would_help(read_run(folder))
    assert "lower highest risk in training" in first
    assert "no weight" not in first
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    text = "".join(json.dumps(line | {"weights": [0.0, 1.0]}) + "\n" for line in lines)
    (folder / "rounds.jsonl").write_text(text)
    (first, *_) = what_would_help(read_run(folder))
    assert "“women”, which is worst off on test records, had no weight" in first
    assert "for “men”" in first
