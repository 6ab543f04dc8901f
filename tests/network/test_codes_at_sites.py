"""Over the network, too, sites that code the same thing differently are refused with both lists."""

from pathlib import Path

import pytest

from fedminmax.config.planned_runs import PlannedRun
from fedminmax.config.read import read_config
from fedminmax.network.server.agree import agree
from fedminmax.network.server.sites import PlainSites
from fedminmax.network.site.policy import read_own_rows
from fedminmax.network.site.settings import SiteSettings
from tests.cli.kits import check, create
from tests.complaints import complaint_of
from tests.network.network_problem import (
    AT_ONCE,
    CONFIG,
    DirectTransport,
    plan_of,
    write_tables,
)

LISTED = '[groups.values]\nsex = ["F", "Female", "M", "Male"]\n'
MAPPED = '[groups.map.sex]\nF = "Female"\nM = "Male"\n'


def write_other_codes(folder: Path, more: str) -> Path:
    """Let the north write F and M, and add these sections to the configuration."""
    path = write_tables(folder)
    north = folder / "north.csv"
    text = north.read_text().replace(",Female,", ",F,").replace(",Male,", ",M,")
    north.write_text(text)
    path.write_text(CONFIG.replace("[features.age]", f"{more}[features.age]"))
    return path


def test_a_server_that_sees_each_site_compares_them(tmp_path: Path) -> None:
    config = read_config(write_other_codes(tmp_path, ""))
    plan = plan_of(config, [PlannedRun("fedminmax", {}, 2)], AT_ONCE)
    said = complaint_of(
        lambda: agree(plan, PlainSites(plan, DirectTransport(tmp_path)), tmp_path / "run")
    )
    assert "'north' has 'F', 'M'; 'south' and 'west' have 'Female', 'Male'" in said
    assert '[groups.map.sex] with F = "Female", M = "Male"' in said


def test_a_site_compares_its_own_rows_with_what_is_listed(tmp_path: Path) -> None:
    """It needs nobody else for that, so this also holds where all sums are masked."""
    config = read_config(write_other_codes(tmp_path, LISTED))
    plan = plan_of(config, [PlannedRun("fedminmax", {}, 2)], AT_ONCE)
    settings = SiteSettings(tmp_path / "north.csv")
    said = complaint_of(lambda: read_own_rows(plan, settings, "north"))
    assert "column 'sex' has 'F', 'M' here, and the configuration also lists 'Female'" in said


def test_a_check_before_the_run_refuses_until_the_codes_are_mapped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create(tmp_path)
    assert check(tmp_path, config=write_other_codes(tmp_path, LISTED)) == 2
    assert '[groups.map.sex] with F = "Female", M = "Male"' in capsys.readouterr().err
    assert check(tmp_path, config=write_other_codes(tmp_path, LISTED + MAPPED)) == 0
    assert "Female" in capsys.readouterr().out


def test_mapped_codes_give_the_same_census(tmp_path: Path) -> None:
    rows = []
    for name, more in (("same", ""), ("mapped", LISTED + MAPPED)):
        folder = tmp_path / name
        folder.mkdir()
        path = write_other_codes(folder, more) if more else write_tables(folder)
        plan = plan_of(read_config(path), [PlannedRun("fedminmax", {}, 2)], AT_ONCE)
        agreed = agree(plan, PlainSites(plan, DirectTransport(folder)), folder / "run")
        rows.append(agreed.census.counts.tolist())
    assert rows[0] == rows[1]
