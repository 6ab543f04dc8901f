"""Lemma 2 as a measurement: rounding passes, anything else is refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from experiments.paper.lemma2 import (
    OneTrajectory,
    compare_first_rounds,
    merged,
    plans_to_compare,
    read_one_trajectory,
    write_one_trajectory,
)
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.studies.study import RunPlan
from tests.complaints import complaint_of
from tests.studies.small_study import PLANS, STUDY

FEDMINMAX = [plan for plan in PLANS if plan.method.name == "FedMinMax"]


def test_settings_differ_by_rounding_alone() -> None:
    *steps, (done, found) = compare_first_rounds(STUDY, FEDMINMAX, 5)
    assert [step for step, _ in steps] == list(range(1, 31))
    assert done == 30
    assert found is not None
    assert (found.source, found.followers) == ("ESG", ("SSG", "centralized"))
    assert found.rows == 80
    assert found.differences["float64"] < 1e-12
    assert found.differences["float32"] < 1e-5


def test_another_trajectory_is_not_taken_for_rounding() -> None:
    other = replace(FEDMINMAX[1], method=FedMinMax(0.1001, 0.1, min_weight=0.0))
    complaint = complaint_of(lambda: list(compare_first_rounds(STUDY, [FEDMINMAX[0], other], 3)))
    assert "more than rounding explains" in complaint


def settings_of(plans: list[RunPlan]) -> list[str]:
    return [plan.setting for plan in plans]


def test_only_what_is_new_is_compared_and_nothing_known_is_lost() -> None:
    assert plans_to_compare(FEDMINMAX, None) == FEDMINMAX
    assert plans_to_compare(FEDMINMAX[:1], None) == []
    found = OneTrajectory("ESG", ("SSG",), 3, 100, {"float64": 1e-16, "float32": 1e-7})
    assert plans_to_compare(FEDMINMAX[:2], found) == []
    assert plans_to_compare(FEDMINMAX[1:2], found) == []
    # Also where the earlier call's source is not asked for again.
    assert settings_of(plans_to_compare(FEDMINMAX[1:], found)) == ["ESG", "centralized"]
    new = OneTrajectory("ESG", ("centralized",), 3, 80, {"float64": 1e-15, "float32": 1e-8})
    assert merged(found, new) == OneTrajectory(
        "ESG", ("SSG", "centralized"), 3, 80, {"float64": 1e-15, "float32": 1e-7}
    )
    assert merged(None, new) == new


def test_the_comparison_is_kept_beside_the_results(tmp_path: Path) -> None:
    assert read_one_trajectory(tmp_path) is None
    found = OneTrajectory("ESG", ("SSG",), 3, 100, {"float64": 1e-16})
    write_one_trajectory(tmp_path, found)
    assert read_one_trajectory(tmp_path) == found
    (tmp_path / "one_trajectory.json").write_text("{}")
    assert "one_trajectory.json is damaged" in complaint_of(lambda: read_one_trajectory(tmp_path))


@pytest.mark.parametrize("word", ["Lemma 2", "SSG", "3 rounds", "100 rows", "1.0e-16 in float64"])
def test_it_says_what_was_checked(word: str) -> None:
    assert word in str(OneTrajectory("ESG", ("SSG",), 3, 100, {"float64": 1e-16}))
