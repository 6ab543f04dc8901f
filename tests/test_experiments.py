"""The schools' tables and their summary: a few schools, from the package to a paired interval.

The comparison of models on tables: its measures, its splits, and the files that it trains on.
"""

import csv
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from experiments.schools.summary import half_width, read_run
from experiments.schools.tables import math_achieve, star, write_tables
from experiments.table_models.measures import LEAST_RECORDS, TEST_SHARE, risks_of, split
from experiments.table_models.ours import KINDS, WITH_SITE, configuration, train_ours
from experiments.table_models.summary import with_part
from experiments.table_models.tables import EFFECTS, Problem, synthetic
from fedminmax.config.read import read_config
from tests.cli.command import run_here


def test_the_tables_are_the_published_ones() -> None:
    pupils = star()
    # Of 26,796 rows, 2,183 have no maths score.
    assert len(pupils) == 26_796 - 2_183
    assert (pupils["school"].nunique(), pupils["pupil"].nunique()) == (80, 10_767)
    assert not pupils.duplicated(["pupil", "grade"]).any()
    schools = math_achieve()
    assert (len(schools), schools["school"].nunique()) == (7_185, 160)
    assert not schools.isna().any().any()


def test_clusters_by_hand() -> None:
    adds = np.array([1.0, -1.0, 2.0, -2.0])
    # The 97.5% quantile of Student's t with 3 degrees of freedom is 3.182446.
    assert half_width(adds, np.arange(4)) == pytest.approx(3.182446 * np.sqrt(4 / 3 * 10), rel=1e-6)
    # What a cluster adds cancels, or doubles (t with 1 degree of freedom: 12.7062).
    assert half_width(adds, np.array([5, 5, 9, 9])) == 0.0
    assert half_width(adds, np.array([5, 9, 5, 9])) == pytest.approx(12.7062 * 6.0, rel=1e-5)


def test_a_few_schools_from_the_package_to_a_paired_change(tmp_path: Path) -> None:
    write_tables(tmp_path, schools=5)
    name = "star-linear-minimax-mean"
    run = tmp_path / "out" / name / "seed-0"
    run_here("train", tmp_path / f"{name}.toml", "--out", run)
    with (tmp_path / "star.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len({row["school"] for row in rows}) == 5
    listed = json.loads((run / "held_out.json").read_text())["rows"]
    held = {number - 1 for numbers in listed.values() for number in numbers}
    tested = {rows[place]["pupil"] for place in held}
    assert 0 < len(tested) < len(held)
    # Only rows without a group stay out.
    known = [n for n, row in enumerate(rows) if row["ethnicity"] and row["sex"] and row["lunch"]]
    assert not tested & {rows[place]["pupil"] for place in known if place not in held}

    ours = read_run(tmp_path, name, 0)
    results = json.loads((run / "results.json").read_text())
    theirs = results["change"]["metrics"]["risk"]
    assert ours.changes["all"].value == pytest.approx(theirs["overall"]["value"], rel=1e-6)
    assert ours.changes["worst group"].value == pytest.approx(theirs["worst"]["value"], rel=1e-6)
    assert ours.changes["all"].low < ours.changes["all"].value < ours.changes["all"].high
    assert ours.ours.proved_lower == pytest.approx(
        results["proof"]["lower"] - results["proof"]["penalty"]
    )


def two_groups(*, classifies: bool) -> Problem:
    """A large group, whose answers below are right, and a small one of a single record."""
    large = LEAST_RECORDS
    frame = pl.DataFrame(
        {
            "target": [0.0, 1.0] * (large // 2) + [1.0],
            "group": ["large"] * large + ["small"],
            "site": ["one"] * (large + 1),
            "x": np.arange(large + 1.0),
        }
    )
    return Problem(frame, ("x",), (), classifies=classifies, real_sites=True)


def test_brier_is_the_sum_over_classes_and_small_groups_are_in_the_mean_only() -> None:
    problem = two_groups(classifies=True)
    everything = np.arange(len(problem.frame))
    answers = np.where(problem.target == 1, 0.9, 0.1)
    answers[-1] = 0.0
    risks = risks_of(problem, everything, everything, answers)
    assert risks.by_group == pytest.approx({"large": 0.02})
    assert risks.worst == pytest.approx(0.02)
    assert risks.mean == pytest.approx((LEAST_RECORDS * 0.02 + 2.0) / (LEAST_RECORDS + 1))


def test_squared_errors_are_in_units_of_the_training_variance() -> None:
    problem = two_groups(classifies=False)
    train, test = np.arange(2), np.arange(LEAST_RECORDS)
    risks = risks_of(problem, train, test, np.full(len(test), 0.5))
    assert risks.mean == pytest.approx(1.0)
    assert risks.auroc is None


def test_a_split_uses_every_record_once() -> None:
    problem = synthetic("noise", 0)
    train, test = split(problem, 3)
    assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(len(problem.frame)))
    assert len(test) == round(TEST_SHARE * len(problem.frame))


@pytest.mark.parametrize("shape", EFFECTS)
def test_synthetic_tables_are_the_same_for_the_same_seed(shape: str) -> None:
    assert synthetic(shape, 1).frame.equals(synthetic(shape, 1).frame)
    assert not synthetic(shape, 1).frame.equals(synthetic(shape, 2).frame)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != WITH_SITE])
@pytest.mark.parametrize("classifies", [True, False])
def test_every_kind_has_a_valid_configuration(
    kind: str, tmp_path: Path, *, classifies: bool
) -> None:
    problem = two_groups(classifies=classifies)
    (tmp_path / "fedminmax.toml").write_text(configuration(problem, kind, 7), encoding="utf-8")
    config = read_config(tmp_path / "fedminmax.toml")
    assert config.seed == 7
    assert config.held_out == 0.0
    assert config.model.kind == ("linear" if (kind, classifies) == ("logistic", False) else kind)


def test_both_models_answer_every_test_record() -> None:
    problem = synthetic("straight lines", 0)
    train, test = split(problem, 0)
    models = {model.name: model for model in train_ours(problem, "logistic", train, test, 0)}
    assert list(models) == ["logistic", "logistic, plain"]
    for model in models.values():
        assert len(model.answers) == len(test)
        # Constant answers have 0.5, and the truth about 0.36 on this table.
        assert risks_of(problem, train, test, model.answers).mean < 0.4
        json.dumps(model.about)


def test_a_part_of_a_page_is_replaced_between_its_marks() -> None:
    page = "before\n<!-- a -->\nold\n<!-- end of a -->\nafter\n"
    assert with_part(page, "a", "new") == "before\n<!-- a -->\n\nnew\n\n<!-- end of a -->\nafter\n"
    with pytest.raises(ValueError, match="no marks of b"):
        with_part(page, "b", "new")
