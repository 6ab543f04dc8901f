"""`fedminmax site check`: what would leave a site, and what the site notes as its policy."""

import json
from dataclasses import fields
from pathlib import Path

import pytest

from fedminmax.network.site.settings import SiteSettings, SmallGroups
from tests.cli.kits import SETTINGS, check, create
from tests.network.network_problem import write_tables
from tests.network.small_group_tables import SMALL_NAMES, write_small_groups

Capture = pytest.CaptureFixture[str]


def test_a_site_sees_what_would_leave_and_notes_what_it_agrees_to(
    tmp_path: Path, capsys: Capture
) -> None:
    create(tmp_path)
    assert check(tmp_path, "--suppress-below", "5") == 0
    shown = capsys.readouterr().out
    assert "count, sum and sum of squares of age" in shown
    assert "how often each listed category occurs in ward" in shown
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert "Leaves north" in lines
    for start in (
        "in each of 3 rounds of fedminmax ",
        "after training, for the model of fedminmax",
    ):
        assert [line for line in lines if line.startswith(start)]
    assert "In a run: 6 questions planned, at most 12 different ones answered" in shown
    assert "north can take part: every row" in shown
    assert (
        "Policy of north: does not take part if a group has fewer than 5 training rows; "
        "at least 2 sites" in shown
    )
    noted = json.loads((tmp_path / SETTINGS).read_text())
    assert noted["columns"] == ["age", "ward", "sex", "ill"]
    assert noted["suppress_below"] == 5
    assert noted["small_groups"] == "refuse"


def test_a_group_below_the_sites_minimum_is_refused_and_nothing_noted(
    tmp_path: Path, capsys: Capture
) -> None:
    create(tmp_path)
    assert check(tmp_path, "--suppress-below", "25") == 2
    error = capsys.readouterr().err
    assert "group 'Female' has fewer than 25 rows here" in error
    assert "--small-groups merge" in error
    assert not (tmp_path / SETTINGS).exists()


def test_merged_groups_are_shown_to_the_site_and_noted_as_its_policy(
    tmp_path: Path, capsys: Capture
) -> None:
    create(tmp_path)
    write_small_groups(tmp_path, held_out=0.0)
    merge = ("--suppress-below", "6", "--small-groups", "merge")
    assert check(tmp_path, *merge, config=tmp_path / "fedminmax.toml") == 0
    table, _, rest = capsys.readouterr().out.partition("Merged, names not disclosed: ")
    assert "merged small groups" in table
    assert not any(name in table for name in SMALL_NAMES)
    assert rest.startswith("Quechua / age under 60 (5 rows), Quechua / age 60 and over (4 rows).\n")
    # Nothing is held out, so nothing is measured after training.
    assert "after training" not in rest
    assert json.loads((tmp_path / SETTINGS).read_text())["small_groups"] == "merge"


def test_too_few_rows_in_all_are_refused_even_if_merged(tmp_path: Path, capsys: Capture) -> None:
    create(tmp_path)
    assert check(tmp_path, "--suppress-below", "100", "--small-groups", "merge") == 2
    assert "fewer than 100 training rows in all" in capsys.readouterr().err
    assert not (tmp_path / SETTINGS).exists()


def test_a_later_check_keeps_the_policy_that_it_is_not_told_to_change(
    tmp_path: Path, capsys: Capture
) -> None:
    create(tmp_path)
    assert check(tmp_path, "--suppress-below", "5", "--small-groups", "merge") == 0
    assert "groups with fewer than 5 training rows are merged" in capsys.readouterr().out
    assert check(tmp_path) == 0
    assert "groups with fewer than 5 training rows are merged" in capsys.readouterr().out
    assert check(tmp_path, "--suppress-below", "6") == 0
    assert "groups with fewer than 6 training rows are merged" in capsys.readouterr().out
    noted = json.loads((tmp_path / SETTINGS).read_text())
    assert (noted["suppress_below"], noted["small_groups"]) == (6, "merge")
    assert check(tmp_path, "--suppress-below", "1", "--small-groups", "refuse") == 0
    assert "groups of any size are disclosed" in capsys.readouterr().out
    noted = json.loads((tmp_path / SETTINGS).read_text())
    assert (noted["suppress_below"], noted["small_groups"]) == (1, "refuse")


def test_a_later_check_keeps_what_was_written_by_hand(tmp_path: Path, capsys: Capture) -> None:
    create(tmp_path)
    assert check(tmp_path) == 0
    noted = json.loads((tmp_path / SETTINGS).read_text())
    by_hand = {"owner": "a", "site_column": "ward", "plan": "of another configuration"}
    (tmp_path / SETTINGS).write_text(json.dumps(noted | by_hand))
    capsys.readouterr()
    assert check(tmp_path) == 0
    assert "rows with 'a' in column 'ward'" in capsys.readouterr().out
    kept = {"owner": "a", "site_column": "ward"}
    assert json.loads((tmp_path / SETTINGS).read_text()) == noted | kept


def test_a_site_notes_how_its_own_table_is_written(tmp_path: Path, capsys: Capture) -> None:
    create(tmp_path)
    config = write_tables(tmp_path)
    rows = (tmp_path / "north.csv").read_text()
    german = rows.replace(",", ";").replace(".", ",")
    (tmp_path / "north.csv").write_bytes(
        german.replace("sex", "sex;\u00e9tage", 1).encode("latin-1")
    )
    assert check(tmp_path, config=config) == 2
    assert 'set encoding = "cp1252"' in capsys.readouterr().err
    (tmp_path / "north.csv").write_text(german)
    assert check(tmp_path, config=config) == 2
    assert 'set decimal = "," in [data]' in capsys.readouterr().err
    assert check(tmp_path, "--decimal", ",", config=config) == 0
    assert "the table is read with decimal ','" in capsys.readouterr().out
    noted = json.loads((tmp_path / SETTINGS).read_text())
    assert noted["format"] == dict.fromkeys(noted["format"]) | {"decimal": ","}
    # A later check keeps it.
    assert check(tmp_path, "--encoding", "latin-1", config=config) == 0
    noted = json.loads((tmp_path / SETTINGS).read_text())
    assert (noted["format"]["decimal"], noted["format"]["encoding"]) == (",", "latin-1")


def test_a_policy_that_cannot_be_read_is_not_written_over(tmp_path: Path, capsys: Capture) -> None:
    create(tmp_path)
    written = '{"data": "north.csv", "minimum_gruop": 20}'
    (tmp_path / SETTINGS).write_text(written)
    assert check(tmp_path) == 2
    assert "not valid (minimum_gruop)" in capsys.readouterr().err
    assert (tmp_path / SETTINGS).read_text() == written


def test_there_are_two_policies(tmp_path: Path, capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        check(tmp_path, "--small-groups", "hide")
    assert "'hide' is unknown; there is 'refuse', 'merge'" in capsys.readouterr().err


def test_the_administrators_page_has_every_setting() -> None:
    page = (Path(__file__).parents[2] / "docs" / "site_policy.md").read_text()
    settings = [line for line in page.splitlines() if line.startswith("| `")]
    words = {field.name for field in fields(SiteSettings)} | {
        f'"{policy.value}"' for policy in SmallGroups
    }
    assert {word for word in words if not any(f"`{word}`" in line for line in settings)} == set()


def test_a_site_sees_that_what_leaves_is_masked(tmp_path: Path, capsys: Capture) -> None:
    create(tmp_path)
    config = tmp_path / "masked.toml"
    text = write_tables(tmp_path).read_text()
    listed = '[groups]\nvalues = { sex = ["Female", "Male"] }'
    masked = text.replace("[groups]", listed) + "[federation]\nsecure_aggregation = true\n"
    config.write_text(masked)
    assert check(tmp_path, config=config) == 0
    shown = capsys.readouterr().out
    assert "the server learns only totals over at least 3 sites." in shown
    assert "by itself" not in shown


def test_a_site_sees_what_it_discloses_to_agree_on_categories(
    tmp_path: Path, capsys: Capture
) -> None:
    create(tmp_path)
    config = write_tables(tmp_path)
    config.write_text(config.read_text().replace('categories = ["a", "b", "c"]\n', ""))
    capsys.readouterr()
    assert check(tmp_path, config=config) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "to agree on the categories of ward how many training rows have each of 4 x" in said
    assert "as text and without masks, which values with at least 10 rows over all sites" in said
