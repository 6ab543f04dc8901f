"""`fedminmax federation create`: a folder for everyone, and no key for anyone else."""

import json
import stat
from pathlib import Path

import pytest

from fedminmax.cli.main import main
from tests.cli.kits import DESCRIBED, check, create
from tests.network.network_problem import write_tables


def test_everyone_gets_a_folder_and_nobody_anothers_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert create(tmp_path) == 0
    kits = tmp_path / "kits"
    said = capsys.readouterr().out
    assert "NO secure aggregation: the server sees every reply of every site separately" in said
    assert "needs at least 3 sites" in said
    defaults = [json.loads(path.read_text()) for path in kits.rglob("federation.json")]
    assert defaults == [{"secure_aggregation": False}] * 4
    assert "sees yours separately" in (kits / "sites/north/README.md").read_text()
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


def test_a_folder_that_is_no_kit_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kits/sites/north").mkdir(parents=True)
    assert check(tmp_path) == 2
    assert "is not a site's kit" in capsys.readouterr().err
    assert main(["federation", "start", "--kit", str(tmp_path)]) == 2
    assert "is not a server's kit" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "{}", '{"client": 3}', "\xff"])
def test_a_damaged_kit_is_a_mistake_in_one_line(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    startup = tmp_path / "kits/sites/north/startup"
    startup.mkdir(parents=True)
    (startup / "fed_client.json").write_text(content, encoding="latin-1")
    assert check(tmp_path) == 2
    error = capsys.readouterr().err
    assert "fed_client.json is damaged; copy the kit again" in error
    assert error.count("\n") == 1


def test_the_agreed_configuration_is_in_every_sites_kit(tmp_path: Path) -> None:
    config = write_tables(tmp_path)
    (tmp_path / "federation.toml").write_text(DESCRIBED)
    kits = tmp_path / "kits"
    words = [str(tmp_path / "federation.toml"), "--config", str(config), "--out", str(kits)]
    assert main(["federation", "create", *words]) == 0
    for site in ("north", "south"):
        assert (kits / "sites" / site / "fedminmax.toml").read_text() == config.read_text()
    words = ["--kit", str(kits / "sites/north"), "--data", str(tmp_path / "north.csv")]
    assert main(["site", "check", *words]) == 0


def test_a_kit_without_the_configuration_asks_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create(tmp_path)
    words = ["--kit", str(tmp_path / "kits/sites/north"), "--data", "north.csv"]
    assert main(["site", "check", *words]) == 2
    error = capsys.readouterr().err
    assert "ask the coordinator for the agreed configuration" in error
    assert error.count("\n") == 1


def test_a_bad_configuration_makes_no_kits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "federation.toml").write_text(DESCRIBED)
    (tmp_path / "fedminmax.toml").write_text("[data]\n")
    words = [str(tmp_path / "federation.toml"), "--config", str(tmp_path / "fedminmax.toml")]
    assert main(["federation", "create", *words, "--out", str(tmp_path / "kits")]) == 2
    assert "fedminmax.toml" in capsys.readouterr().err
    assert not (tmp_path / "kits").exists()
