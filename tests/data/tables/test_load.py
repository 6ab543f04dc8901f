"""From files to encoded sites: every policy, and every mistake with its line."""

from pathlib import Path

import polars as pl
import pytest
import torch

from fedminmax.core.losses import brier_loss, squared_error_loss
from fedminmax.core.models import linear
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import train
from tests.complaints import complaint_of
from tests.data.tables.small_tables import NORTH, SOUTH, load, write_files

SITES = '[data.sites]\nnorth = "north.csv"\nsouth = "south.csv"\n'
ONE_FILE = 'file = "all.csv"\nsite_column = "hospital"\n'


def said(folder: Path, *changes: tuple[str, str]) -> str:
    """The complaint about this configuration and these files, without their folder."""
    return complaint_of(lambda: load(folder, *changes)).replace(f"{folder}/", "")


def pooled_csv() -> str:
    """Both sites in one file, the second one first, with a site column."""
    header, *north = NORTH.splitlines()
    south = SOUTH.splitlines()[1:]
    rows = [f"{line},south" for line in south] + [f"{line},north" for line in north]
    return "\n".join([f"{header},hospital", *rows]) + "\n"


def test_two_sites(tmp_path: Path) -> None:
    write_files(tmp_path)
    tables = load(tmp_path)
    assert tables.sites == ("north", "south")
    assert tables.group_names == ("Female", "Male")
    names = ("ward = a", "ward = b", "ward = c", "ward is missing")
    flags = ("smoker", "smoker is missing")
    assert tables.encoding.names == ("age", "age is missing", *names, *flags)
    assert [len(part.examples) for part in tables.train] == [4, 4]
    assert tables.train[1].examples.y.tolist() == [1, 0, 0, 1]
    assert tables.train[1].examples.group.tolist() == [1, 0, 1, 0]
    assert tables.test == ()
    small, untested = tables.notes
    assert small.startswith("every group has fewer than 30 training rows")
    assert untested == "there are no test rows: set held_out or test files in [data]"
    (warning,) = tables.warnings
    assert warning == (
        "groups under the minimum of 30 rows, whose risk is mostly noise (its standard error with "
        "30 rows is up to 0.18): 'Female' (4 training and 0 test rows), 'Male' (4 training and 0 "
        "test rows)"
    )


def test_one_file_with_a_site_column_is_the_same(tmp_path: Path) -> None:
    write_files(tmp_path, all=pooled_csv())
    apart, together = load(tmp_path), load(tmp_path, (SITES, ONE_FILE))
    assert together.encoding == apart.encoding
    assert together.sites == apart.sites
    for one, other in zip(together.train, apart.train, strict=True):
        assert torch.equal(one.examples.x, other.examples.x)
        assert torch.equal(one.examples.group, other.examples.group)


def test_the_federation_takes_the_rows_and_trains(tmp_path: Path) -> None:
    write_files(tmp_path)
    tables = load(tmp_path)
    rows = [(part.examples.x, part.examples.y, part.examples.group) for part in tables.train]
    model = linear(len(tables.encoding.names), tables.encoding.outputs)
    federation = Simulation(model, brier_loss, rows, group_names=tables.group_names)
    risks = [done.risks.max() for done in train(federation, FedMinMax(), rounds=30, seed=0)]
    assert risks[-1] < risks[0]


def test_regression_trains_in_units_of_the_targets_deviation(tmp_path: Path) -> None:
    write_files(tmp_path, south=SOUTH.replace("\n,F", "\n44,F"))
    tables = load(
        tmp_path,
        ('target = "ill"\nclasses = ["no", "yes"]', 'target = "age"\ntask = "regression"'),
        ('[features.age]\nkind = "numeric"', '[features.ill]\nkind = "boolean"'),
        ('kind = "logistic"', 'kind = "linear"'),
    )
    targets = torch.cat([part.examples.y for part in tables.train])
    assert float(targets.mean()) == pytest.approx(0.0, abs=1e-6)
    assert float(targets.std(correction=0)) == pytest.approx(1.0)
    rows = [(part.examples.x, part.examples.y, part.examples.group) for part in tables.train]
    model = linear(len(tables.encoding.names), tables.encoding.outputs)
    federation = Simulation(model, squared_error_loss, rows)
    risks = [done.risks.max() for done in train(federation, FedMinMax(), rounds=30, seed=0)]
    assert risks[-1] < risks[0]
    assert "(its standard error with 30 rows is about 26% of it)" in tables.warnings[0]


def test_held_out_rows_take_no_part_in_the_encoding(tmp_path: Path) -> None:
    write_files(tmp_path)
    tables = load(tmp_path, ("held_out = 0", "held_out = 0.5"))
    assert sum(len(part.examples) for part in (*tables.train, *tables.test)) == 8
    assert tables.summary.rows == sum(len(part.examples) for part in tables.train) < 8
    ages = torch.cat([part.examples.x[:, 0] for part in tables.train])
    assert float(ages.sum()) == pytest.approx(0.0, abs=1e-5)


def test_test_files_by_site_and_for_all(tmp_path: Path) -> None:
    write_files(tmp_path, test=NORTH, shared=SOUTH.replace("c,", "new,"))
    files = ("[groups]", '[data.test]\nnorth = "test.csv"\nall = "shared.csv"\n[groups]')
    tables = load(tmp_path, files)
    assert [part.owner for part in tables.test] == ["north", "all"]
    assert torch.equal(tables.test[0].examples.x, tables.train[0].examples.x)
    what = "values that are not among their categories, and are ignored: 'ward'"
    assert tables.warnings[0] == f"{what} in 2 rows of {tmp_path}/shared.csv (first: row 2)"
    assert tables.kept_warnings[0] == what


def test_notes_on_columns_groups_and_classes(tmp_path: Path) -> None:
    write_files(tmp_path, north=NORTH.replace("Male", "Other").replace(",yes\n", ",perhaps\n"))
    tables = load(
        tmp_path,
        ('"no", "yes"', '"no", "yes", "perhaps", "never"'),
        ('[features.smoker]\nkind = "boolean"\n', ""),
    )
    assert tables.notes[:3] == (
        "columns 'smoker' are not in the configuration: not used",
        "class 'never' has no training row",
        "not every site has every group: 'Male' with 1 of 2, 'Other' with 1 of 2",
    )


def test_rows_without_a_protected_value(tmp_path: Path) -> None:
    write_files(tmp_path, north=NORTH.replace("41,Male", "41,"))
    assert said(tmp_path) == (
        "north.csv (4 rows): sensitive attribute 'sex', row 2 is missing (1 such row); correct "
        'it, or set missing in [groups] to "own_group" or "leave_out"'
    )
    columns = 'columns = ["sex"]'
    own = load(tmp_path, (columns, f'{columns}\nmissing = "own_group"'))
    assert own.group_names == ("Female", "Male", "sex missing")
    out = load(tmp_path, (columns, f'{columns}\nmissing = "leave_out"'))
    assert [(len(part.examples), part.left_out) for part in out.train] == [(3, 1), (4, 0)]
    assert "rows skipped without a protected value, or with an unlisted one: north 1" in out.notes


def test_groups_that_were_not_agreed_on_are_refused_in_training(tmp_path: Path) -> None:
    write_files(tmp_path, south=SOUTH.replace("Female", "Diverse"))
    values = ("[features.age]", '[groups.values]\nsex = ["Female", "Male"]\n[features.age]')
    assert said(tmp_path, values).startswith(
        "south.csv: sensitive attribute 'sex' is 'Diverse' in 2 rows, which [groups.values]"
    )
    columns = 'columns = ["sex"]'
    own = load(tmp_path, values, (columns, f'{columns}\nunlisted = "own_group"'))
    assert own.group_names == ("Female", "Male", "sex other")


def test_nobody_has_a_protected_value(tmp_path: Path) -> None:
    write_files(tmp_path)
    for name in ("north", "south"):
        path = tmp_path / f"{name}.csv"
        pl.read_csv(path).with_columns(sex=pl.lit(None)).write_csv(path)
    columns = 'columns = ["sex"]'
    assert said(tmp_path, (columns, f'{columns}\nmissing = "leave_out"')) == (
        "no training row has a value in every sensitive attribute; fill them, or set missing in "
        '[groups] to "own_group"'
    )


def test_protected_columns_are_features_only_on_request(tmp_path: Path) -> None:
    write_files(tmp_path)
    section = '[features.sex]\nkind = "category"\ncategories = ["Female", "Male"]\n[model]'
    without = load(tmp_path, ("[model]", section))
    assert not any(name.startswith("sex") for name in without.encoding.names)
    columns = 'columns = ["sex"]'
    asked = load(tmp_path, ("[model]", section), (columns, f"{columns}\nas_features = true"))
    assert {"sex = Female", "sex = Male"} < set(asked.encoding.names)


def test_a_missing_file(tmp_path: Path) -> None:
    write_files(tmp_path)
    (tmp_path / "south.csv").unlink()
    assert said(tmp_path) == "south.csv does not exist or is not a file; correct the path"


def test_a_site_without_one_of_the_columns(tmp_path: Path) -> None:
    write_files(tmp_path, south=SOUTH.replace("smoker", "Smoker"))
    assert said(tmp_path) == (
        "south.csv (4 rows) has no column 'smoker', which the configuration names; did you mean "
        "'Smoker'?"
    )


def test_a_group_that_is_in_the_test_file_alone(tmp_path: Path) -> None:
    write_files(tmp_path, test=NORTH.replace("Male", "Other"))
    assert said(tmp_path, ("[groups]", '[data.test]\nnorth = "test.csv"\n[groups]')) == (
        "test.csv: group 'Other' (2 rows) has no training row at any site; training has "
        "'Female', 'Male': remove these rows, or add such rows to training"
    )


def test_a_target_with_one_class(tmp_path: Path) -> None:
    write_files(
        tmp_path, north=NORTH.replace(",yes\n", ",no\n"), south=SOUTH.replace(",yes\n", ",no\n")
    )
    assert said(tmp_path) == (
        "target 'ill' has one class, 'no', in all 8 training rows of all sites; give rows of "
        "another class or choose another target"
    )


def test_a_row_without_a_site(tmp_path: Path) -> None:
    write_files(tmp_path, all=pooled_csv().replace("no,south", "no,", 1))
    assert said(tmp_path, (SITES, ONE_FILE)) == (
        "all.csv (8 rows): site column 'hospital', row 2 is missing (1 such row); correct or "
        "remove these rows"
    )


def test_a_site_column_that_is_not_there(tmp_path: Path) -> None:
    write_files(tmp_path)
    changed = ONE_FILE.replace("all.csv", "north.csv")
    assert said(tmp_path, (SITES, changed)) == (
        "north.csv (4 rows) has no column 'hospital', which [data] names as the site column; "
        "there is 'age', 'sex', 'ward', 'smoker', 'ill'"
    )
