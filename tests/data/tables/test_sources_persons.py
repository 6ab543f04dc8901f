"""Rows of one person: held out together, at every site alike, with one process or many."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedminmax.config.planned_runs import PlannedRun
from fedminmax.config.read import TableConfig, read_config
from fedminmax.core.randomness import Purpose
from fedminmax.data.partition import number_of_name, split_persons
from fedminmax.data.tables.load import load_federated_tables
from fedminmax.network.server.run import run_plan
from fedminmax.network.site.policy import read_own_rows
from fedminmax.network.site.settings import SiteSettings
from fedminmax.network.wire.plan import digest_of
from tests.cli.command import run_here
from tests.complaints import complaint_of
from tests.data.tables.small_tables import write_config, write_files
from tests.network.network_problem import SITES, DirectTransport, plan_of, write_tables

PERSON = ("held_out = 0\n", 'held_out = 0.5\nperson_column = "patient"\n')


def numbers(names: list[str]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.array([number_of_name(name) for name in names], np.uint64)


@given(st.lists(st.sampled_from("abcdefgh"), max_size=40), st.floats(0.0, 1.0), st.integers(0, 9))
def test_nobody_is_on_both_sides(names: list[str], share: float, seed: int) -> None:
    train, test = split_persons(numbers(names), share, seed)
    assert sorted([*train, *test]) == list(range(len(names)))
    assert not {names[row] for row in train} & {names[row] for row in test}
    assert share > 0 or not len(test)


def test_over_many_seeds_everybody_is_drawn_equally_often_and_apart_from_the_others() -> None:
    people = numbers([f"{n}" for n in range(12)])
    drawn = np.zeros((2000, 12))
    for seed in range(2000):
        drawn[seed, split_persons(people, 0.25, seed)[1]] = 1
    # Four standard errors of a share of 0.25, and of a correlation of 0, over 2000 draws.
    assert np.abs(drawn.mean(axis=0) - 0.25).max() < 4 * np.sqrt(0.25 * 0.75 / 2000)
    assert np.abs(np.corrcoef(drawn.T) - np.eye(12)).max() < 4 / np.sqrt(2000)


def test_test_and_validation_rows_are_drawn_apart() -> None:
    people = numbers([f"{n}" for n in range(4000)])
    held, set_aside = (
        np.isin(np.arange(4000), split_persons(people, 0.5, 0, why)[1])
        for why in (Purpose.FOLDS, Purpose.VALIDATION)
    )
    assert abs((held & set_aside).mean() - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 4000)


def with_patients(folder: Path) -> TableConfig:
    """Three sites with 40 patients between them, most of whom are seen at several."""
    path = write_tables(folder)
    for place, site in enumerate(SITES):
        header, *lines = (folder / f"{site}.csv").read_text().splitlines()
        patients = (
            np.random.default_rng(10 + place).permutation(np.arange(len(lines)) % 40).tolist()
        )
        rows = [f"{line},p{who}" for line, who in zip(lines, patients, strict=True)]
        (folder / f"{site}.csv").write_text("\n".join([f"{header},patient", *rows]) + "\n")
    text = path.read_text().replace("seed = 3", 'seed = 3\nperson_column = "patient"')
    path.write_text(text)
    return read_config(path)


def test_a_patient_of_two_sites_is_held_out_at_both_or_at_none(tmp_path: Path) -> None:
    config = with_patients(tmp_path)
    tables = load_federated_tables(replace(config, validation=0.3))
    assert any("135 rows are of 40 persons ('patient')" in note for note in tables.notes)
    sides: list[set[str]] = [set(), set(), set()]
    for site in SITES:
        lines = (tmp_path / f"{site}.csv").read_text().splitlines()[1:]
        patients = [line.rsplit(",", 1)[1] for line in lines]
        apart = [own.rows[site].tolist() for own in (tables.held_out, tables.set_aside)]
        for number, patient in enumerate(patients, start=1):
            side = 1 if number in apart[0] else 2 if number in apart[1] else 0
            sides[side].add(patient)
    assert all(len(side) > 2 for side in sides)
    assert sum(map(len, sides)) == 40


def test_sites_of_a_network_split_in_the_same_way_and_the_server_believes_them(
    tmp_path: Path,
) -> None:
    config = replace(with_patients(tmp_path), held_out=0.5, validation=0.3)
    tables = load_federated_tables(config)
    plan = replace(plan_of(config, [PlannedRun("fedminmax", {}, 2)]), validation=0.3)
    for site in SITES:
        own = read_own_rows(plan, SiteSettings(tmp_path / f"{site}.csv"), site)
        assert own.held_out.numbers.tolist() == tables.held_out.rows[site].tolist()
    outcome = run_plan(plan, DirectTransport(tmp_path), tmp_path / "server")
    assert (outcome.error, outcome.refused, outcome.unmeasured) == (None, {}, {})


def test_sites_agree_to_whose_rows_stay_together(tmp_path: Path) -> None:
    config = read_config(write_tables(tmp_path))
    run = PlannedRun("fedminmax", {"learning_rate": "3.0"}, 40)
    by_person = replace(config, schema=replace(config.schema, person_column="ward"))
    assert digest_of(plan_of(by_person, [run])) != digest_of(plan_of(config, [run]))


@pytest.mark.parametrize(
    ("patients", "column", "complaint"),
    [
        ("a,,c,d", "patient", "person column 'patient', row 2 is missing (1 such row)"),
        ("a,b,c,d", "ill", "person_column = 'ill' is the target or the site column"),
        ("a,b,c,d", "age", "[features.age] is the target, site, person or weight column"),
        ("a,b,c,d", "patent", "has no column 'patent', which the configuration names"),
    ],
)
def test_a_person_column_that_cannot_be(
    tmp_path: Path, patients: str, column: str, complaint: str
) -> None:
    write_files(tmp_path)
    for name in ("north", "south"):
        lines = (tmp_path / f"{name}.csv").read_text().splitlines()
        ends = ["patient", *patients.split(",")]
        rows = [f"{line},{end}" for line, end in zip(lines, ends, strict=True)]
        (tmp_path / f"{name}.csv").write_text("\n".join(rows) + "\n")
    path = write_config(tmp_path, (PERSON[0], PERSON[1].replace("patient", column)))
    assert complaint in complaint_of(lambda: load_federated_tables(read_config(path)))


def test_init_names_the_column_and_files_to_measure_need_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_patients(tmp_path)
    monkeypatch.chdir(tmp_path)
    words = [
        "--target",
        "ill",
        "--groups",
        "sex",
        "--person-column",
        "patient",
        "--out",
        "own.toml",
    ]
    run_here("init", *(f"{site}.csv" for site in SITES), *words)
    schema = read_config("own.toml").schema
    assert schema.person_column == "patient"
    assert "patient" not in schema.feature_columns
    run_here("train", "own.toml", "--rounds", "2", "--out", "run")
    lines = Path("north.csv").read_text().splitlines()
    Path("later.csv").write_text("\n".join(line.rsplit(",", 1)[0] for line in lines) + "\n")
    capsys.readouterr()
    run_here("evaluate", "run", "later.csv", "--json")
    assert '"rows": 60' in capsys.readouterr().out
