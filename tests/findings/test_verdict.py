"""Every verdict in a case made for it, and the numbers that it names, against arithmetic."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from fedminmax.findings.findings import Findings
from fedminmax.findings.records import Results, VerdictOfRun
from fedminmax.findings.tables import Table, mistakes_tables
from fedminmax.findings.text import TOO_FEW
from fedminmax.findings.verdict import judge
from fedminmax.report.read_run import read_run
from tests.runs.run_folders import CONVERGED, FALLING, interval, metric, results, write_run

MISSED, ALARMS = "false_negative_rate", "false_positive_rate"
NO_BENEFIT = "no benefit: keep the standard model"
# Of women 0.20, of men 0.10 and of others 0.15 are misclassified by the standard model.
BEFORE = (0.20, 0.10, 0.15)
GROUPS = ("women", "men", "others")
ROWS = (150, 900, 400)


def run_of(
    misclassified: Sequence[float],
    half: float = 0.01,
    *,
    rows: Sequence[int] = ROWS,
    baseline: object = True,
    rates: Mapping[str, tuple[Sequence[float], Sequence[int]]] | None = None,
    **changed: object,
) -> Results:
    """A run with these changes in shares of misclassified, and of rates among so many records."""
    after = [old + new for old, new in zip(BEFORE, misclassified, strict=True)]
    halves = (0.01,) * 3
    content = results("FedMinMax", [2 * one for one in after], halves, rows, GROUPS, **changed)
    test: dict[str, Any] = content["test"]  # type: ignore[assignment]
    sections = {
        "risk": ([2 * one for one in misclassified], rows),
        "accuracy": ([-one for one in misclassified], rows),
        **(rates or {}),
    }
    for name in rates or {}:
        test["metrics"][name] = metric((0.5,) * 3, halves, ROWS, GROUPS)
    metrics = {
        name: {
            "overall": interval(0.0, half, rows=sum(counts)),
            "by_group": [
                interval(value, half, rows=count)
                for value, count in zip(values, counts, strict=True)
            ],
            "worst": interval(0.0, half),
        }
        for name, (values, counts) in sections.items()
    }
    identity = {"key": "fedavg", "name": "FedAvg", "rounds": 100, "converged": baseline}
    change = {"baseline": identity, "min_rows": 50, "comparisons": 16, "metrics": metrics}
    return Results.model_validate(content | {"change": change})


def verdict_on(*misclassified: float, **changed: Any) -> VerdictOfRun:
    return judge(run_of(misclassified, **changed))


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ((-0.05, 0.00, 0.005), "helped"),
        ((-0.05, -0.02, 0.0), "helped"),
        ((-0.05, 0.02, 0.0), "helped, at a price"),
        # Others end at 0.19, below what women had, and then above it.
        ((-0.05, 0.0, 0.04), "helped, at a price"),
        ((-0.05, 0.0, 0.06), NO_BENEFIT),
        ((-0.009, 0.02, 0.0), NO_BENEFIT),
        ((0.02, 0.0, 0.0), NO_BENEFIT),
        # The interval of half 0.01 ends at 0: that is not clear.
        ((-0.01, 0.01, 0.0), "no clear change"),
        # Only those gain who were not worst off.
        ((0.0, -0.02, -0.02), "no clear change"),
    ],
)
def test_the_rule(changes: tuple[float, ...], verdict: str) -> None:
    assert verdict_on(*changes).verdict == verdict


def test_a_harm_that_accuracy_hides_is_found_and_named() -> None:
    """Women who are "yes" are missed more, others less: as many are misclassified as before."""
    rates = {MISSED: ((0.20, -0.02, 0.0), (60, 300, 49)), ALARMS: ((-0.03, 0.015, 0.0), ROWS)}
    found = verdict_on(0.0, 0.0, 0.0, rates=rates)
    assert found.verdict == NO_BENEFIT
    assert found.positive == "yes"
    largest = found.harms[0]
    assert largest is not None
    assert (largest.group, largest.kind, largest.rows) == ("women", "missed", 60)
    numbers = (largest.before, largest.after, largest.value, largest.low, largest.high)
    assert numbers == pytest.approx((0.3, 0.5, 0.2, 0.19, 0.21))
    assert [(harm.group, harm.kind) for harm in found.harms[1:]] == [("men", "false alarms")]
    assert "of 1,000 in “women” that are “yes”, 500 are missed instead of 300" in found.reason
    assert "+200; 90% interval +190 to +210" in found.reason
    assert "1 further harm" in found.reason


def test_groups_of_few_records_are_not_judged() -> None:
    """Of 49 others, and of 49 of the class, any change may be chance; so of a small group."""
    few = {"rows": (150, 900, 49)}
    assert verdict_on(-0.05, 0.0, 0.5, **few).verdict == "helped"
    rates = {MISSED: ((0.0, 0.0, 0.5), (60, 300, 49))}
    assert verdict_on(-0.05, 0.0, 0.0, rates=rates).verdict == "helped"
    own = run_of((-0.05, 0.0, 0.5))
    assert own.change is not None
    assert judge(own).verdict == NO_BENEFIT
    content = own.model_dump(mode="json")
    for section in content["change"]["metrics"].values():
        section["by_group"][2]["small"] = True
    assert judge(Results.model_validate(content)).verdict == "helped"


def test_all_records_together_may_be_harmed() -> None:
    content = run_of((-0.05, 0.005, 0.005)).model_dump(mode="json")
    content["change"]["metrics"]["accuracy"]["overall"] = interval(-0.004, 0.003, rows=1450)
    found = judge(Results.model_validate(content))
    assert found.verdict == "helped, at a price"
    assert [harm.group for harm in found.harms] == ["all records"]
    assert "of 1,000 records, " in found.reason


def test_the_worst_off_group_is_told_first() -> None:
    found = verdict_on(-0.05, 0.02, 0.0)
    assert found.worst_group is not None
    assert found.worst_group.group == "women"
    assert found.reason.startswith("“women” was worst off with the standard model")
    assert "150 are misclassified instead of 200, a clear gain" in found.reason
    assert "50; 90% interval \N{MINUS SIGN}60 to \N{MINUS SIGN}40" in found.reason


@pytest.mark.parametrize(
    ("chosen", "baseline", "names"),
    [
        (CONVERGED, False, "FedAvg has"),
        (FALLING, True, "FedMinMax has"),
        (FALLING, False, "FedMinMax and FedAvg have"),
    ],
)
def test_what_has_not_converged_is_not_finished(
    chosen: object, baseline: object, names: str
) -> None:
    for changes in ((-0.05, 0.0, 0.0), (0.5, 0.5, 0.5)):
        own = run_of(changes, baseline=baseline, convergence=chosen)
        found = judge(own)
        assert found.verdict == "not finished"
        assert found.reason.startswith(f"{names} not converged")
        cells = mistakes_tables(own.model_copy(update={"verdict": found}))[0].lines
        assert not any("worse" in line[-1] or "better" in line[-1] for line in cells)


def test_noise_that_hides_convergence_is_no_reason_to_wait() -> None:
    assert verdict_on(-0.05, 0.0, 0.0, baseline=None, convergence=None).verdict == "helped"


def test_without_anything_to_compare_a_run_is_not_finished() -> None:
    alone = run_of((0.0, 0.0, 0.0)).model_copy(update={"change": None})
    assert (judge(alone).verdict, "standard model" in judge(alone).reason) == ("not finished", True)
    empty = alone.test.model_copy(update={"rows": 0, "metrics": {}})
    untested = judge(alone.model_copy(update={"test": empty}))
    assert (untested.verdict, "test records" in untested.reason) == ("not finished", True)


@pytest.mark.parametrize(("harm", "verdict"), [(0.0, "no clear change"), (0.05, NO_BENEFIT)])
def test_a_single_group_with_enough_records_is_not_called_worst_off(
    harm: float, verdict: str
) -> None:
    """The others may be worse off; but a harm is a harm."""
    found = verdict_on(0.0, harm, 0.0, rows=(49, 900, 49))
    assert found.verdict == verdict
    assert found.worst_group is None
    assert found.reason.startswith("Fewer than two groups have 50 test records or more")


def found_in(folder: Path, **changed: Any) -> Findings:
    return read_run(write_run(folder / "run", **changed)).findings


def test_numbers_are_off_by_so_much(tmp_path: Path) -> None:
    content = results("FedMinMax", (30.0, 21.0), (1.0, 1.0), (150, 900), ("women", "men"))
    test: dict[str, Any] = content["test"]  # type: ignore[assignment]
    errors = {
        name: metric(values, (0.5, 0.5), (150, 900), ("women", "men"))
        for name, values in (("risk", (900.0, 441.0)), ("absolute_error", (30.0, 21.0)))
    }
    test["metrics"] = errors
    sections = {
        "overall": interval(-1.0, 2.0, rows=1050),
        "by_group": [interval(-10.0, 0.5, rows=150), interval(1.0, 0.5, rows=900)],
        "worst": interval(-9.0, 0.5),
    }
    identity = {"key": "fedavg", "name": "FedAvg", "rounds": 100, "converged": True}
    both = {"risk": sections, "absolute_error": sections}
    found = found_in(
        tmp_path,
        task="regression",
        classes=[],
        test=test,
        change={"baseline": identity, "min_rows": 50, "comparisons": 6, "metrics": both},
    ).verdict
    assert found is not None
    assert (found.verdict, found.positive) == ("helped, at a price", None)
    assert "30.0 instead of 40.0, a clear gain" in found.reason
    assert found.harms
    assert (found.harms[0].group, found.harms[0].kind) == ("men", "absolute error")


def test_groups_of_few_records_are_listed_apart(tmp_path: Path) -> None:
    """Seven women changed most by far, and would be called worst off."""
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
    assert run.findings.verdict is not None
    assert run.findings.verdict.worst_group is not None
    assert run.findings.verdict.worst_group.group == "men"
    assert "women" not in run.findings.verdict.reason
    assert [(fact.before, fact.after) for fact in run.findings.screen.facts][:1] == [("200", "175")]
    # Seven are not told, nor the 900 others, whom the total of 1,057 would tell them by.
    first = mistakes_tables(run.chosen.results)[0]
    assert {line[0]: line[1] for line in first.lines} == {
        "men": "150",
        "others": "\N{EN DASH}",
        "all records": "1,057",
        "women": "\N{EN DASH}",
    }
    assert first.lines[-1] == (
        "women",
        "\N{EN DASH}",
        "\N{EN DASH}",
        "\N{EN DASH}",
        TOO_FEW,
    )


def test_a_group_without_test_records_is_never_worst_off(tmp_path: Path) -> None:
    found = found_in(tmp_path, before=(None, 0.2), after=(None, 0.1), rows=(0, 900)).verdict
    assert found is not None
    assert found.worst_group is not None
    assert found.worst_group.group == "men"


def test_the_facts_are_before_and_after_with_the_interval_of_the_change(tmp_path: Path) -> None:
    """Misclassified are half the risk; both ends are independent here, of half widths 0.03."""
    facts = found_in(tmp_path).screen.facts
    overall = [(150 * a + 900 * b) / 1050 for a, b in ((0.20, 0.10), (0.15, 0.12))]
    assert [(fact.before, fact.after) for fact in facts] == [
        ("200", "150"),
        (f"{1000 * overall[0]:.0f}", f"{1000 * overall[1]:.0f}"),
        ("100", "120"),
    ]
    half = 2**0.5 * 30
    ends = f"{50 - half:.0f} to {50 + half:.0f}"
    assert facts[0].note == f"Better by 50 ({ends})"
    assert [fact.name for fact in facts][::2] == ["Worst-off group: women", "Changed most: men"]
    assert [fact.tone for fact in facts] == ["better", "same", "worse"]
    alone = found_in(tmp_path / "alone", before=None).screen.facts[0]
    assert (alone.before, alone.after, alone.note) == (None, "150", "90% interval 120 to 180")


def rates_table(own: Results) -> Table:
    return mistakes_tables(own.model_copy(update={"verdict": judge(own)}))[1]


def test_each_kind_of_mistake_has_its_table() -> None:
    own = run_of((0.0, 0.0, 0.0), rates={MISSED: ((0.20, -0.02, 0.0), (60, 300, 49))})
    table = rates_table(own)
    assert "Missed per 1,000 that are “yes”" in table.caption
    assert "for all 16 comparisons at once" in table.caption
    lines = {line[0]: line[1:] for line in table.lines}
    assert lines["women"] == ("60", "300", "500", "+200 (+190 to +210) worse")
    assert lines["men"][-1].endswith("better")
    assert lines["others"][-1] == TOO_FEW


def test_the_end_of_a_clear_change_never_reads_as_0() -> None:
    own = run_of((-0.05, 0.0102, 0.0100001))
    lines = {
        line[0]: line
        for line in mistakes_tables(own.model_copy(update={"verdict": judge(own)}))[0].lines
    }
    assert lines["men"][-1] == "+10.2 (+0.2 to +20.2) worse"
    assert lines["others"][-1].startswith("+10.0001 (+0.0001 to")
    assert lines["women"][-1].endswith("better")
