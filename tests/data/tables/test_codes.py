"""Sites that code the same thing differently: refused with both lists, until they are mapped."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from fedminmax.config.read import read_config
from fedminmax.core.errors import InputError
from fedminmax.data.tables.load import FederatedTables, load_federated_tables
from tests.cli.command import fedminmax
from tests.data.tables.clinics import INIT, recoded, write_clinics

SEX = (("2", "1"), ("F", "M"), ("female", "male"))
STATE = (("I", "W"), ("ill", "well"), ("ill", "well"))


def load(folder: Path, *changes: tuple[str, str], more: str = "") -> FederatedTables:
    path = folder / "fedminmax.toml"
    text = path.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    path.write_text(f"{text}\n{more}")
    return load_federated_tables(read_config(path))


def test_sex_coded_in_three_ways_is_refused_with_all_lists_and_the_lines_that_map_them(
    tmp_path: Path,
) -> None:
    write_clinics(tmp_path, recoded("sex", *SEX))
    done = fedminmax(*INIT, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    for part in (
        "column 'sex' is coded differently: 'north' has '1', '2'; 'south' has 'F', 'M'; 'west' has",
        '[groups.map.sex] with 1 = "...", 2 = "...", F = "female", M = "male"',
        'own_values = ["sex"]',
    ):
        assert part in done.stderr
    again = fedminmax("train", "fedminmax.toml", cwd=tmp_path)
    assert again.returncode == 2
    assert "'south' has 'F', 'M'" in again.stderr
    assert not (tmp_path / "runs").exists()


def test_mapped_codes_give_the_numbers_of_files_that_never_differed(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("plain", "coded")]
    for folder, change in zip(folders, (None, recoded("sex", *SEX)), strict=True):
        folder.mkdir()
        write_clinics(folder, change)
        fedminmax(*INIT, cwd=folder)
    mapped = '[groups.map.sex]\n1 = "male"\n2 = "female"\nF = "female"\nM = "male"\n'
    one, other = load(folders[0]), load(folders[1], more=mapped)
    assert other.group_names == one.group_names == ("female", "male")
    for own, same in zip(one.train, other.train, strict=True):
        assert torch.equal(own.examples.x, same.examples.x)
        assert torch.equal(own.examples.group, same.examples.group)


def test_a_target_in_two_codings_is_two_classes_once_it_is_mapped(tmp_path: Path) -> None:
    write_clinics(tmp_path, recoded("state", *STATE))
    done = fedminmax(*INIT, cwd=tmp_path)
    assert done.returncode == 2
    assert "'north' has 'I', 'W'; 'south' and 'west' have 'ill', 'well'" in done.stderr
    assert '[data.map.state] with I = "ill", W = "well"' in done.stderr
    tables = load(tmp_path, more='[data.map.state]\nI = "ill"\nW = "well"\n')
    assert tables.encoding.schema.target.classes == ("ill", "well")
    assert sorted(torch.unique(tables.train[0].examples.y).tolist()) == [0, 1]


def test_the_page_about_own_data_maps_as_written(tmp_path: Path) -> None:
    def change(name: str, frame: pl.DataFrame) -> pl.DataFrame:
        coded = recoded("sex", ("F", "M"), *SEX[1:])(name, frame)
        return recoded("state", *STATE)(name, coded)

    write_clinics(tmp_path, change)
    assert fedminmax(*INIT, cwd=tmp_path).returncode == 2
    page = (Path(__file__).parents[3] / "docs" / "own_data.md").read_text()
    block = page.partition("```toml\n")[2].partition("```")[0].replace("outcome", "state")
    tables = load(tmp_path, more=block)
    assert tables.group_names == ("female", "male")
    assert tables.encoding.schema.target.classes == ("ill", "well")


def test_a_value_that_all_share_does_not_hide_the_others(tmp_path: Path) -> None:
    def change(name: str, frame: pl.DataFrame) -> pl.DataFrame:
        coded = recoded("sex", ("F", "M"), ("F", "M"), ("female", "male"))(name, frame)
        unknown = np.arange(len(frame)) % 20 == 0
        return coded.with_columns(sex=pl.Series(np.where(unknown, "unknown", coded["sex"])))

    write_clinics(tmp_path, change)
    assert "'north' and 'south' have 'F', 'M', 'unknown'" in fedminmax(*INIT, cwd=tmp_path).stderr


def test_a_category_in_abbreviations_is_refused_and_mapped(tmp_path: Path) -> None:
    wards = (("b", "g", "r"), ("blue", "green", "red"), ("blue", "green", "red"))
    write_clinics(tmp_path, recoded("ward", *wards))
    assert '[data.map.ward] with b = "blue"' in fedminmax(*INIT, cwd=tmp_path).stderr
    tables = load(tmp_path, more='[data.map.ward]\nb = "blue"\ng = "green"\nr = "red"\n')
    assert [name for name in tables.encoding.names if "ward =" in name] == [
        *("ward = blue", "ward = green", "ward = red")
    ]


@pytest.mark.parametrize(
    "codes",
    [
        # A hospital for women, one for men, and regions that each clinic has for itself.
        (("female", "female"), ("male", "male"), ("female", "male")),
        (("female", "female"), ("male", "male"), ("male", "male")),
        (("green", "red"), ("green", "red"), ("red", "blue")),
    ],
)
def test_different_values_that_are_no_codings_of_each_other_pass(
    tmp_path: Path, codes: tuple[tuple[str, str], ...]
) -> None:
    write_clinics(tmp_path, recoded("sex", *codes))
    assert fedminmax(*INIT, cwd=tmp_path).returncode == 0


def test_values_of_their_own_are_allowed_where_the_configuration_says_so(tmp_path: Path) -> None:
    towns = (("Ulm", "Bonn"), ("Lyon", "Nice"), ("Turin", "Rome"))
    write_clinics(tmp_path, recoded("sex", *towns))
    assert "own_values" in fedminmax(*INIT, cwd=tmp_path).stderr
    tables = load(tmp_path, ("[data]\n", '[data]\nown_values = ["sex"]\n'))
    assert len(tables.group_names) == 6


def test_numbers_that_one_clinic_never_has_are_a_warning(tmp_path: Path) -> None:
    def change(name: str, frame: pl.DataFrame) -> pl.DataFrame:
        generator = np.random.default_rng(len(name))
        codes = ["1", "2"] if name == "north" else ["1", "2", "3", "4"]
        return frame.with_columns(sex=pl.Series(generator.choice(codes, len(frame))))

    write_clinics(tmp_path, change)
    done = fedminmax(*INIT, cwd=tmp_path)
    assert done.returncode == 0
    assert "'sex' is never '3', '4' at 'north'" in done.stderr


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        ('[groups.map.sexx]\nF = "female"', "did you mean 'sex'?"),
        ('[data.map.age]\n1 = "2"', "[data.map.age] is not a column whose values can be mapped"),
        ('[groups.map.sex]\nF = "femal"', "'femal', which is not listed; did you mean 'female'?"),
        ('[groups.map.sex]\nF = "f"\nf = "female"', "name the final value"),
    ],
)
def test_a_map_that_cannot_work_is_refused(tmp_path: Path, lines: str, fault: str) -> None:
    write_clinics(tmp_path)
    assert fedminmax(*INIT, cwd=tmp_path).returncode == 0
    with pytest.raises(InputError) as found:
        load(tmp_path, more=lines)
    assert fault in str(found.value)


def test_a_file_with_none_of_the_listed_categories_is_refused(tmp_path: Path) -> None:
    write_clinics(tmp_path)
    assert fedminmax(*INIT, cwd=tmp_path).returncode == 0
    write_clinics(tmp_path, recoded("ward", ("x", "y", "z"), *[("blue", "green", "red")] * 2))
    with pytest.raises(InputError) as found:
        load(tmp_path)
    said = str(found.value)
    assert said.startswith("column 'ward' has none of its categories 'blue', 'green', 'red' in 160")
    assert (
        "rows of 'north': if these rows code them differently, say how in [data.map.ward]" in said
    )
