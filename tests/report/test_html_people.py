"""The story in people and the first screen, against arithmetic and what a user stated."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedminmax.report.page import NOT_STATED, about
from fedminmax.report.people import people
from fedminmax.report.read_run import read_run
from fedminmax.report.text import distinct
from tests.runs.run_folders import interval, metric, results, write_run


def change(values: tuple[float, ...], half: float, name: str = "accuracy") -> dict[str, Any]:
    """What training leaves of the change in risk and in another metric."""
    section = {
        "overall": interval(values[0], half),
        "by_group": [interval(value, half, rows=150) for value in values],
        "worst": interval(values[0], half),
    }
    baseline = {"key": "fedavg", "name": "FedAvg", "rounds": 100, "converged": True}
    return {"baseline": baseline, "min_rows": 50, "metrics": {"risk": section, name: section}}


def test_of_a_thousand_so_many_fewer_are_misclassified(tmp_path: Path) -> None:
    """Accuracies are 1 - risk / 2: of women 0.80 and 0.85, of men 0.90 and 0.88."""
    told = people(read_run(write_run(tmp_path / "run", change=change((0.05, -0.02), 0.01))))
    assert told == (
        "Of 1,000 in “women”, the group that was worst off with the baseline, about 50 fewer are "
        "misclassified (90% interval 40 to 60): 150 instead of 200. Of 1,000 in “men”, about 20 "
        "more are misclassified (90% interval 10 to 30)."
    )


def test_a_difference_within_noise_is_not_told_as_one(tmp_path: Path) -> None:
    told = people(read_run(write_run(tmp_path / "run", change=change((0.05, -0.02), 0.06))))
    assert told == (
        "Of 1,000 in “women”, the group that was worst off with the baseline, about 150 are "
        "misclassified, compared with 200 with the baseline: on 150 test rows this difference is "
        "within noise. No other group fares worse beyond noise."
    )


def test_against_a_baseline_that_has_not_converged_nobody_gains(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", change=change((0.05, -0.02), 0.01)))
    assert run.baseline is not None
    unknown = run.baseline.results.model_copy(update={"convergence": None})
    told = people(replace(run, baseline=replace(run.baseline, results=unknown)))
    assert told == (
        "Of 1,000 in “women”, the group that was worst off with the baseline, about 150 are "
        "misclassified, compared with 200 with the baseline: neither a gain nor a loss yet, "
        "because FedAvg is not known to have converged."
    )


def test_groups_of_few_rows_are_not_told_of(tmp_path: Path) -> None:
    """Nor of the only one with enough rows: the others may be worse off."""
    for name, rows in (("one", (49, 900)), ("none", (49, 49))):
        run = write_run(tmp_path / name, rows=rows, change=change((0.05, -0.02), 0.001))
        assert people(read_run(run)) == ""


def test_without_a_baseline_there_is_no_difference(tmp_path: Path) -> None:
    assert people(read_run(write_run(tmp_path / "run", before=None))) == (
        "Of 1,000 in “women”, the worst-off group, about 150 are misclassified "
        "(90% interval 120 to 180)."
    )


def test_numbers_are_off_by_so_much(tmp_path: Path) -> None:
    def regression(name: str, errors: tuple[float, float]) -> dict[str, Any]:
        content = results(name, errors, (1.0, 1.0), (150, 900), ("women", "men"))
        test: dict[str, Any] = content["test"]  # type: ignore[assignment]
        test["metrics"]["absolute_error"] = metric(errors, (1.0, 1.0), (150, 900), ("women", "men"))
        return test

    run = write_run(
        tmp_path / "run",
        before=(40.0, 20.0),
        after=(30.0, 21.0),
        halves=(1.0, 1.0),
        task="regression",
        test=regression("FedMinMax", (30.0, 21.0)),
        change=change((-10.0, 1.0), 0.5, "absolute_error"),
    )
    told = people(read_run(run))
    # Both folders have the same made-up test section: the change is what training left.
    assert "predictions are off by 10.0 less on average (90% interval 9.5 to 10.5)" in told
    assert "In “men”, predictions are off by 1.0 more (90% interval 0.5 to 1.5)." in told


@pytest.mark.parametrize("stated", [True, False])
def test_the_first_screen(*, stated: bool, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", finished="2026-11-16")
    if stated:
        (run / "config.toml").write_text(
            '[groups]\ncolumns = ["sex"]\n[report]\ntitle = "Follow-up visits"\n'
            'intended_use = "Whom to call first."\nnot_for = "Insurance."\n'
        )
    found = about(read_run(run))
    facts = dict(found.facts)
    assert found.title == ("Follow-up visits" if stated else "Predicting “outcome”")
    assert facts["What is predicted"] == "“outcome”, one of no and yes."
    assert (
        facts["For which groups"] == ("By “sex”, " if stated else "") + "2 groups: women and men."
    )
    assert facts["On which rows"] == (
        "Trained on 800 rows of 2 sites (north and south); measured on 1,050 other rows, not "
        "used in training."
    )
    assert facts["When"] == "2026-11-16"
    assert facts["Intended use"] == ("Whom to call first." if stated else NOT_STATED)
    assert facts["Not for"] == ("Insurance." if stated else NOT_STATED)


def test_a_damaged_configuration_states_nothing(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    for text in ("<script>", "report = 3", "[report]\ntitle = 3", "groups = 1"):
        (run / "config.toml").write_text(text)
        assert dict(about(read_run(run)).facts)["Not for"] == NOT_STATED


def test_cut_names_can_be_told_apart() -> None:
    names = [
        f"everybody from the far {side} / {age}" for side in ("north", "south") for age in "ab"
    ]
    for width in (12, 17, 26):
        found = distinct([*names, "x" * 90, "x" * 91], width)
        assert len(set(found)) == 6
        assert max(map(len, found)) <= width + 4
