"""What the page says is what was measured: which risk, whose change, which mistakes."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedminmax.report.curves import curves_of, rounds_figure
from fedminmax.report.mistakes import mistakes, mistakes_fact, mistakes_table
from fedminmax.report.page import build_report, render_report
from fedminmax.report.questions import what_would_help
from fedminmax.report.read_run import read_run, read_runs
from fedminmax.report.story import comparison, facts
from tests.runs.run_folders import metric, write_run

LOGISTIC: dict[str, Any] = {
    "model": {"kind": "logistic", "hidden": [], "members": 1},
    "loss": "cross_entropy",
}
CLOSE = {"upper": 0.5, "lower": 0.49996, "penalty": 0.01, "ridge": 1e-4}


def with_rates(folder: Path, before: tuple[float, float], after: tuple[float, float]) -> Path:
    """A run in which these shares of women and men are missed, of intervals of 5 points."""
    run = write_run(folder)
    for part, missed in ((run / "baseline", before), (run, after)):
        path = part / "results.json"
        content: dict[str, Any] = json.loads(path.read_text())
        rate = metric(missed, (0.05, 0.05), (150, 900), ("women", "men"))
        content["test"]["metrics"]["false_negative_rate"] = rate
        path.write_text(json.dumps(content))
    return run


@pytest.mark.parametrize(
    ("loss", "name"), [("cross_entropy", "cross-entropy"), ("brier", "Brier risk")]
)
def test_the_curve_names_the_loss_that_it_shows(loss: str, name: str, tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", **LOGISTIC | {"loss": loss}))
    assert f"Top: {name} of each group" in rounds_figure(curves_of(run), "x").caption
    page = render_report(build_report([run]), "1.0")
    assert f"A model that is minimax in {name} over these groups" in page
    assert ("Training minimises another risk, cross-entropy" in page) == (loss == "cross_entropy")


def test_under_an_arrow_stands_the_interval_of_the_change(tmp_path: Path) -> None:
    """Both ends are independent here: their half widths of 0.03 and 0.01 are squared and added."""
    worst, overall, _ = facts(read_run(write_run(tmp_path / "run")))
    half = 2**0.5 * 0.03
    assert worst.detail == (
        f"change \N{MINUS SIGN}0.1000, beyond noise (90% interval "
        f"\N{MINUS SIGN}{0.1 + half:.4f} to \N{MINUS SIGN}{0.1 - half:.4f}) · women"
    )
    assert overall.detail.startswith("change +0.0200, beyond noise (90% interval 0.0059 to 0.0341)")
    alone = facts(read_run(write_run(tmp_path / "alone", before=None)))[0]
    assert alone.detail == "90% interval 0.270 to 0.330 · women"


def test_a_kind_of_mistake_that_became_more_frequent_is_on_the_first_screen(
    tmp_path: Path,
) -> None:
    run = read_run(with_rates(tmp_path / "run", (0.44, 0.30), (0.64, 0.31)))
    told = mistakes(run)
    assert told.startswith("Of 1,000 in “women” that are “yes”, 640 are missed instead of 440")
    assert "90% interval of the change 129 to 271" in told
    (fact,) = mistakes_fact(run)
    assert (fact.before, fact.after) == ("44 %", "64 %")
    page = render_report(build_report([run]), "1.0")
    assert page.index("640 are missed instead of 440") < page.index("Could any model of this kind")
    table = mistakes_table(run)
    assert table is not None
    assert table.lines[0][2:] == ("44 % (39 to 49)", "64 % (59 to 69)")


def test_mistakes_that_changed_within_noise_or_fell_are_no_harm(tmp_path: Path) -> None:
    run = read_run(with_rates(tmp_path / "run", (0.44, 0.60), (0.49, 0.30)))
    assert mistakes(run) == ""
    assert mistakes_fact(run) == []
    assert mistakes(read_run(write_run(tmp_path / "none"))) == ""


def test_no_table_of_measures_is_too_wide_for_a_screen(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run") / "results.json"
    content = json.loads(path.read_text())
    for name in ("overconfidence", "selection_rate", "false_positive_rate", "calibration"):
        rate = metric((0.1, 0.2), (0.05, 0.05), (150, 900), ("women", "men"))
        content["test"]["metrics"][name] = rate
    path.write_text(json.dumps(content))
    (part,) = build_report([read_run(path.parent)]).parts
    assert all(len(table.headers) <= 6 for table in (*part.measures, *part.other_measures))
    shown = [header for table in part.measures for header in table.headers]
    assert "false positive rate of “yes”" in shown
    assert "calibration of “yes”" in shown


def test_a_proof_of_the_highest_risk_is_not_told_of_a_group_without_weight(
    tmp_path: Path,
) -> None:
    folder = write_run(tmp_path / "run", **LOGISTIC, proof=CLOSE)
    (first, *_) = what_would_help(read_run(folder)).reasons
    assert "no logistic model on these features has a lower highest risk in training." in first
    assert "as good as it can be" not in first
    assert "no weight" not in first
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    text = "".join(json.dumps(line | {"weights": [0.0, 1.0]}) + "\n" for line in lines)
    (folder / "rounds.jsonl").write_text(text)
    (first, *_) = what_would_help(read_run(folder)).reasons
    assert "“women”, which is worst off on test rows, had no weight in training" in first
    assert "which was for “men”: another model may serve it better" in first


def test_a_baseline_that_is_better_than_all_runs_is_named(tmp_path: Path) -> None:
    folders = [
        write_run(tmp_path / "a", name="AFL", after=(0.45, 0.2), before=(0.30, 0.2)),
        write_run(tmp_path / "b", after=(0.40, 0.2), before=(0.30, 0.2)),
    ]
    told = comparison(read_runs(folders))
    assert told.startswith("Of 2 runs and their baselines, FedAvg (baseline of AFL) has the lowest")
    assert "next is FedMinMax with 0.400" in told
