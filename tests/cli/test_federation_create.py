"""`fedminmax federation create` and `fedminmax site check`: kits, and what would leave a site."""

import json
import stat
from pathlib import Path

import pytest

from fedminmax.cli.main import main
from tests.federation.network_problem import write_tables

DESCRIBED = """
sites = ["north", "south"]
[server]
port = 18444
[people]
"ann@lab.org" = "coordinator"
"bob@lab.org" = "member"
"""


def create(folder: Path, text: str = DESCRIBED) -> int:
    file = folder / "federation.toml"
    file.write_text(text)
    return main(["federation", "create", str(file), "--out", str(folder / "kits")])


def check(folder: Path, *more: str) -> int:
    config = write_tables(folder)
    words = ["site", "check", "--kit", str(folder / "kits/sites/north")]
    words += ["--data", str(folder / "north.csv"), "--config", str(config), *more]
    return main(words)


def test_everyone_gets_a_folder_and_nobody_anothers_key(tmp_path: Path) -> None:
    assert create(tmp_path) == 0
    kits = tmp_path / "kits"
    keys = sorted(str(path.relative_to(kits)) for path in kits.rglob("*.key"))
    assert keys == [
        "people/ann@lab.org/startup/client.key",
        "people/bob@lab.org/startup/client.key",
        "server/startup/server.key",
        "sites/north/startup/client.key",
        "sites/south/startup/client.key",
    ]
    secrets = [*kits.rglob("*.key"), *(kits / "authority").rglob("*.json")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in secrets} == {0o600}
    assert stat.S_IMODE(kits.stat().st_mode) == 0o700
    assert "connects to localhost:18444" in (kits / "sites/north/README.md").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["federation.toml", "kits"]


def test_no_kit_allows_code_or_a_shell(tmp_path: Path) -> None:
    create(tmp_path)
    for kit in ("server", "sites/north", "sites/south"):
        rules = json.loads((tmp_path / "kits" / kit / "local/authorization.json").read_text())
        assert all(
            rights.get(what, "none") == "none"
            for rights in rules["permissions"].values()
            for what in ("byoc", "shell_commands")
        )


def test_kits_are_never_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    create(tmp_path)
    assert create(tmp_path) == 2
    assert "keys are made once" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('"south"', '"north"', "'north' is there twice"),
        ('"south"', '"../south"', "'../south' is not a name"),
        ('"south"', '"server"', "'server' is not a name"),
        ("18444", "0", "port"),
        ('"coordinator"', '"member"', 'has no "coordinator"'),
        ('"coordinator"', '"king"', "people"),
        ("ann@lab.org", "ann", "'ann' is not of the form name@place.org"),
        ("[server]", "[srever]", "srever"),
        ("sites =", "sites", "line 2"),
    ],
)
def test_a_mistake_is_one_line(
    old: str, new: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert create(tmp_path, DESCRIBED.replace(old, new)) == 2
    error = capsys.readouterr().err
    assert reason in error
    assert error.count("\n") == 1
    assert not (tmp_path / "kits").exists()


def test_a_site_sees_what_would_leave_and_notes_what_it_agrees_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create(tmp_path)
    assert check(tmp_path, "--minimum-group", "5") == 0
    shown = capsys.readouterr().out
    assert "count, sum and sum of squares of age" in shown
    assert "how often each listed category occurs in ward" in shown
    assert "Stays at north: every row" in shown
    noted = json.loads((tmp_path / "kits/sites/north/local/fedminmax.json").read_text())
    assert noted["columns"] == ["age", "ward", "sex", "ill"]
    assert noted["minimum_group"] == 5


def test_a_group_below_the_sites_minimum_is_refused_and_nothing_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create(tmp_path)
    assert check(tmp_path, "--minimum-group", "25") == 2
    assert "group 'Female' has fewer than 25 rows here" in capsys.readouterr().err
    assert not (tmp_path / "kits/sites/north/local/fedminmax.json").exists()


def test_a_folder_that_is_no_kit_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kits/sites/north").mkdir(parents=True)
    assert check(tmp_path) == 2
    assert "is no site's kit" in capsys.readouterr().err
    assert main(["federation", "start", "--kit", str(tmp_path)]) == 2
    assert "is no server's kit" in capsys.readouterr().err
