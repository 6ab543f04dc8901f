"""The schools' tables and their summary: a few schools, from the package to a paired interval."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from experiments.schools.summary import half_width, read_run
from experiments.schools.tables import math_achieve, star, write_tables
from tests.cli.in_process import run_here


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
    # The 97.5 % quantile of Student's t with 3 degrees of freedom is 3.182446.
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
