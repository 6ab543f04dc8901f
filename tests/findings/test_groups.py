"""Who is said to have gained and who to have done worse, against arithmetic."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fedminmax.findings.findings import Findings
from fedminmax.findings.tables import mistakes_table, risk_table
from fedminmax.findings.text import TOO_FEW
from fedminmax.report.read_run import read_run
from tests.runs.run_folders import CONVERGED, FALLING, interval, metric, results, write_run


def change(values: tuple[float, ...], half: float, name: str = "accuracy") -> dict[str, Any]:
    """What training leaves of the change in risk and in another metric."""
    section = {
        "overall": interval(values[0], half),
        "by_group": [interval(value, half, rows=150) for value in values],
        "worst": interval(values[0], half),
    }
    baseline = {"key": "fedavg", "name": "FedAvg", "rounds": 100, "converged": True}
    return {"baseline": baseline, "min_rows": 50, "metrics": {"risk": section, name: section}}


def found(folder: Path, **changed: Any) -> Findings:
    return read_run(write_run(folder / "run", **changed)).findings


def test_of_a_thousand_so_many_fewer_are_misclassified(tmp_path: Path) -> None:
    """Accuracies are 1 - risk / 2: of women 0.80 and 0.85, of men 0.90 and 0.88."""
    story = found(tmp_path, change=change((0.05, -0.02), 0.01)).story
    assert "150 are misclassified with FedMinMax, 200 with FedAvg" in story
    assert "50 fewer of 1,000 (90 % interval 40 to 60)" in story
    assert "“men” did worse: 20 more of 1,000 (90 % interval 10 to 30)" in story


def test_a_change_whose_interval_has_0_is_not_clear(tmp_path: Path) -> None:
    story = found(tmp_path, change=change((0.05, -0.02), 0.06)).story
    assert "no clear change (90 % interval \N{MINUS SIGN}110 to 10)" in story
    assert "“men”" not in story


@pytest.mark.parametrize(
    ("after", "worst_now"),
    [((0.30, 0.24), ""), ((0.20, 0.30), "“men” is worst off now."), ((0.2, 0.45), "had before")],
)
def test_who_is_worst_off_now(after: Sequence[float], worst_now: str, tmp_path: Path) -> None:
    story = found(tmp_path, after=after).story
    assert story.startswith("“women” was worst off with FedAvg")
    assert (worst_now in story) if worst_now else ("now" not in story)


@pytest.mark.parametrize(
    ("chosen", "baseline", "because"),
    [
        (CONVERGED, FALLING, "FedAvg has not converged"),
        (FALLING, CONVERGED, "FedMinMax has not converged"),
        (FALLING, FALLING, "FedMinMax has not converged and FedAvg has not converged"),
        (CONVERGED, None, "FedAvg is not known to have converged"),
    ],
)
@pytest.mark.parametrize("after", [(0.30, 0.24), (0.50, 0.10)])
def test_what_has_not_converged_is_no_gain_and_no_loss(
    chosen: object, baseline: object, because: str, after: Sequence[float], tmp_path: Path
) -> None:
    run = write_run(tmp_path / "run", after=after, convergence=chosen)
    path = run / "baseline" / "results.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"convergence": baseline}))
    story = read_run(run).findings.story
    assert story.endswith(f"neither a gain nor a loss yet, because {because}.")
    assert not {"fewer", "more", "worse"} & set(story.split())


def test_several_groups_that_did_worse_are_counted(tmp_path: Path) -> None:
    story = found(
        tmp_path,
        before=(0.4, 0.2, 0.2),
        after=(0.3, 0.25, 0.23),
        halves=(0.01, 0.01, 0.01),
        rows=(60, 60, 60),
        groups=("a", "b", "c"),
        census=((1, 2, 3), (4, 5, 6)),
    ).story
    assert "“b” did worse: 25 more of 1,000 (90 % interval 11 to 39). So did 1 more group." in story


def test_without_a_baseline_nothing_is_compared(tmp_path: Path) -> None:
    story = found(tmp_path, before=None).story
    assert "150 are misclassified with FedMinMax (90 % interval 120 to 180)" in story
    assert "no baseline" in story


def test_numbers_are_off_by_so_much(tmp_path: Path) -> None:
    content = results("FedMinMax", (30.0, 21.0), (1.0, 1.0), (150, 900), ("women", "men"))
    test: dict[str, Any] = content["test"]  # type: ignore[assignment]
    test["metrics"]["absolute_error"] = metric(
        (30.0, 21.0), (1.0, 1.0), (150, 900), ("women", "men")
    )
    story = found(
        tmp_path,
        before=(40.0, 20.0),
        after=(30.0, 21.0),
        halves=(1.0, 1.0),
        task="regression",
        test=test,
        change=change((-10.0, 1.0), 0.5, "absolute_error"),
    ).story
    assert "10.0 less (90 % interval 9.5 to 10.5)" in story
    assert "“men” did worse: 1.0 more (90 % interval 0.5 to 1.5)" in story


def test_groups_of_few_records_are_in_no_verdict(tmp_path: Path) -> None:
    """Seven women changed most by far, and would be called worst off and all of the difference."""
    run = read_run(
        write_run(
            tmp_path / "run",
            before=(1.2, 0.4, 0.3),
            after=(0.1, 0.35, 0.28),
            halves=(0.001, 0.01, 0.01),
            rows=(7, 150, 900),
            groups=("women", "men", "others"),
            census=((1, 2, 3), (4, 5, 6)),
        )
    )
    assert run.findings.story.startswith("“men” was worst off")
    assert "women" not in run.findings.story
    assert [(fact.before, fact.after) for fact in run.findings.facts][::2] == [
        ("0.400", "0.350"),
        ("0.100", "0.070"),
    ]
    assert run.baseline is not None
    last = risk_table(run.chosen.results, run.baseline.results).lines[-1]
    assert (last[0], last[-2]) == ("women", TOO_FEW)


@pytest.mark.parametrize("rows", [(49, 900), (49, 49)])
def test_where_too_few_groups_have_records_nothing_is_said(
    rows: tuple[int, int], tmp_path: Path
) -> None:
    """Nor of the only one with enough records: the others may be worse off."""
    told = found(tmp_path, rows=rows, change=change((0.05, -0.02), 0.001))
    assert told.story.startswith("Fewer than two groups have 50 test records or more")
    assert [fact.after for fact in told.facts][::2] == ["\N{EN DASH}"] * 2


def test_a_group_without_test_records_is_never_worst_off(tmp_path: Path) -> None:
    story = found(tmp_path, before=(None, 0.2), after=(None, 0.1), rows=(0, 900)).story
    assert story.startswith("“men” was worst off with FedAvg")


def test_the_facts_are_before_and_after_with_the_interval_of_the_change(tmp_path: Path) -> None:
    """Both ends are independent here: their half widths of 0.03 and 0.01 are squared and added."""
    facts = found(tmp_path).facts
    assert [(fact.before, fact.after) for fact in facts] == [
        ("0.400", "0.300"),
        (f"{(150 * 0.40 + 900 * 0.20) / 1050:.3f}", f"{(150 * 0.30 + 900 * 0.24) / 1050:.3f}"),
        ("0.200", "0.060"),
    ]
    half = 2**0.5 * 0.03
    ends = f"\N{MINUS SIGN}{0.1 + half:.4f} to \N{MINUS SIGN}{0.1 - half:.4f}"
    assert facts[0].detail == f"clear change: \N{MINUS SIGN}0.1000 (90 % interval {ends}) · women"
    assert "+0.0200 (90 % interval 0.0059 to 0.0341)" in facts[1].detail
    alone = found(tmp_path / "alone", before=None).facts[0]
    assert alone.detail == "90 % interval 0.270 to 0.330 · women"


def test_squared_errors_have_three_figures_of_their_size(tmp_path: Path) -> None:
    facts = found(
        tmp_path,
        before=(41_000.0, 20_000.0),
        after=(30_000.0, 21_000.0),
        halves=(900.0, 300.0),
        task="regression",
    ).facts
    assert (facts[0].before, facts[0].after) == ("41,000", "30,000")


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


def test_a_kind_of_mistake_that_became_more_frequent_is_told(tmp_path: Path) -> None:
    run = read_run(with_rates(tmp_path / "run", (0.44, 0.30), (0.64, 0.31)))
    told = run.findings
    assert "“women” that are “yes”, FedMinMax misses 640, FedAvg 440" in told.mistakes
    assert "90 % interval of the change 129 to 271" in told.mistakes
    assert (told.facts[-1].before, told.facts[-1].after) == ("44 %", "64 %")
    assert run.baseline is not None
    table = mistakes_table(run.chosen.results, run.baseline.results)
    assert table is not None
    assert table.lines[0][2:] == ("44 % (39 to 49)", "64 % (59 to 69)")


def test_mistakes_without_a_clear_rise_are_no_harm(tmp_path: Path) -> None:
    told = read_run(with_rates(tmp_path / "run", (0.44, 0.60), (0.49, 0.30))).findings
    assert told.mistakes == ""
    assert len(told.facts) == 3
    assert found(tmp_path / "none").mistakes == ""
