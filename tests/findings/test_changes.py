"""The change that was measured, and the interval of a difference of two runs from its two ends.

The latter is held against a published example and against simulation.
"""

import json
import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fedminmax.findings.records import Change, Interval
from fedminmax.findings.verdict import change_between, changes_of
from fedminmax.report.read_run import Run, read_run
from tests.complaints import complaint_of
from tests.runs.run_folders import interval, write_run


def wilson(successes: int, rows: int) -> Interval:
    """Wilson's score interval of a proportion at 95%."""
    z, share = 1.959964, successes / rows
    middle = (share + z**2 / (2 * rows)) / (1 + z**2 / rows)
    half = z / (1 + z**2 / rows) * math.sqrt(share * (1 - share) / rows + z**2 / (4 * rows**2))
    return Interval(value=share, low=middle - half, high=middle + half, rows=rows)


def test_the_published_example_of_squaring_and_adding() -> None:
    """Newcombe 1998, Table II, method 10: 56/70 against 48/80 gives 0.0524 to 0.3339."""
    change = change_between(before=wilson(48, 80), after=wilson(56, 70))
    assert change is not None
    assert round(change.value, 4) == 0.2
    assert (round(change.low, 4), round(change.high, 4)) == (0.0524, 0.3339)
    assert change.is_clear


def test_equal_models_are_called_different_in_at_most_one_of_twenty_test_sets() -> None:
    generator = np.random.default_rng(0)
    rows, sets = 200, 2000
    draws = generator.exponential(size=(sets, 2, rows))
    means = draws.mean(axis=2)
    halves = 1.96 * draws.std(axis=2, ddof=1) / math.sqrt(rows)

    def found(number: int) -> bool:
        ends = [
            Interval(value=mean, low=mean - half, high=mean + half, rows=rows)
            for mean, half in zip(means[number], halves[number], strict=True)
        ]
        change = change_between(*ends)
        return change is not None and change.is_clear

    # Three standard errors of a share of 0.05 over so many sets.
    assert np.mean([found(number) for number in range(sets)]) < 0.05 + 3 * math.sqrt(0.0475 / sets)


def test_nothing_is_said_where_there_is_nothing_to_compare() -> None:
    whole, empty = wilson(5, 10), Interval(value=None, low=None, high=None)
    assert change_between(whole, empty) is None
    assert change_between(empty, whole) is None
    assert change_between(whole, Interval(value=0.5, low=None, high=None)) is None


def changes_in(run: Run) -> list[Change | None]:
    return changes_of(run.chosen.results)


def change_section(values: tuple[float | None, ...], rounds: int = 100) -> dict[str, object]:
    return {
        "baseline": {"key": "fedavg", "name": "FedAvg", "rounds": rounds, "converged": True},
        "min_rows": 50,
        "metrics": {
            "risk": {
                "overall": interval(-0.02, 0.001, rows=1050),
                "by_group": [interval(value, 0.005, rows=150) for value in values],
                "worst": interval(-0.1, 0.005),
            }
        },
    }


def test_a_change_that_was_measured_row_by_row_is_told(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", change=change_section((-0.1, 0.04))))
    women, men, everyone = changes_in(run)
    assert women is not None
    assert (women.before, women.after, women.rows) == (0.40, 0.30, 150)
    assert (women.value, women.low, women.high) == pytest.approx((-0.1, -0.105, -0.095))
    assert men is not None
    assert men.is_clear
    assert everyone is not None
    assert (everyone.group, everyone.rows, everyone.value) == ("all records", 1050, -0.02)


def test_a_run_that_is_not_compared_with_its_baseline_is_refused(tmp_path: Path) -> None:
    """Its baseline was trained for 100 rounds, or there is no change."""
    shorter = write_run(tmp_path / "other", change=change_section((-0.1, 0.04), rounds=50))
    none = write_run(tmp_path / "none", change=None)
    for run in (shorter, none):
        complaint = complaint_of(partial(read_run, run))
        assert "is not compared with its baseline; finish or repeat the run" in complaint
    alone = read_run(write_run(tmp_path / "alone", before=None))
    assert changes_in(alone) == []


def test_a_group_without_a_change_has_none(tmp_path: Path) -> None:
    section = change_section((None, 0.04))
    run = write_run(
        tmp_path / "run", before=(None, 0.2), after=(None, 0.24), rows=(0, 900), change=section
    )
    assert [change is None for change in changes_in(read_run(run))] == [True, False, False]


def test_a_change_of_other_groups_is_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    path = run / "results.json"
    content = json.loads(path.read_text()) | {"change": change_section((-0.1, 0.04, 0.0))}
    path.write_text(json.dumps(content))
    complaint = complaint_of(lambda: read_run(run))
    assert "change: risk has 3 values for 2 groups" in complaint


def test_nothing_is_said_about_the_gain_of_a_group_too_small_to_be_trained_for() -> None:
    before = Interval(value=0.9, low=0.8, high=1.0, rows=500)
    after = Interval(value=0.2, low=0.1, high=0.3, rows=500)
    for small in (True, False):
        change = change_between(before, after.model_copy(update={"small": small}))
        assert change is not None
        assert change.is_clear is not small
