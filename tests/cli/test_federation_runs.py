"""`fedminmax federation run | status | stop | resume`: mistakes that show before any network.

`fedminmax federation local`: mistakes before anything is started.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from fedminmax.cli.main import main
from fedminmax.config.read import Overrides
from fedminmax.network.flare.federation_file import write_masked_by_default, write_sites_of
from fedminmax.network.wire.site_rules import SiteRules
from fedminmax.runs.federation import FederationRun, open_federation_run
from tests.cli.in_process import complaint_here, run_here
from tests.network.network_problem import SITES, write_tables
from tests.runs.network_runs import run_between_sites

RUN = ("federation", "run")
ACTIONS = ("create", "start", "run", "status", "resume", "stop", "local")


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_tables(tmp_path)


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    """As much of a person's kit as is looked at before the network."""
    folder = tmp_path / "ann@lab.org"
    folder.mkdir()
    write_sites_of(folder, SITES)
    write_masked_by_default(folder, masked=False)
    return folder


def test_a_folder_that_is_no_persons_kit_is_named(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = f"{tmp_path} is not a person's kit; give people/NAME from 'fedminmax federation"
    assert expected in complaint_here(capsys, *RUN, config, "--kit", tmp_path)
    assert expected in complaint_here(capsys, "federation", "status", "--kit", tmp_path)
    assert not Path("runs").exists()


def test_sites_must_be_those_of_the_federation_each_once(
    config: Path, kit: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for sites, expected in (
        ("north,east", "site 'east' is not in this federation: north, south, west"),
        ("north, north", "site 'north' appears twice in --sites; name it once"),
    ):
        words = [*RUN, config, "--kit", kit, "--sites", sites]
        assert expected in complaint_here(capsys, *words)
    assert not Path("runs").exists()


def test_a_missing_configuration_is_named(kit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = complaint_here(capsys, *RUN, kit / "none.toml", "--kit", kit)
    assert "none.toml does not exist; write one with 'fedminmax init'" in message


def test_a_missing_test_file_shows_before_the_run(
    config: Path, kit: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = config.read_text().replace("held_out = 0.2", 'test = { later = "later.csv" }')
    config.write_text(text)
    message = complaint_here(capsys, *RUN, config, "--kit", kit)
    assert "later.csv does not exist; give it, or remove it" in message


@pytest.mark.parametrize("action", ["stop", "resume"])
def test_a_folder_must_have_a_run(
    action: str, config: Path, kit: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = complaint_here(capsys, "federation", action, kit)
    assert "has no run over a network; give a folder of 'fedminmax federation run'" in message
    local = FederationRun("", config, kit=None, sites=SITES, site_rules=SiteRules())
    open_federation_run(Path("local"), local)
    message = complaint_here(capsys, "federation", action, "local")
    assert "local is a run of 'fedminmax federation local', which ends with its command" in message


def test_a_run_that_was_never_submitted_cannot_be_stopped(
    config: Path, kit: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    open_federation_run(
        Path("run"),
        FederationRun("", config, kit=kit, sites=SITES, site_rules=SiteRules()),
    )
    message = complaint_here(capsys, "federation", "stop", "run")
    assert "run has no run that was submitted; nothing to stop" in message


def test_a_folder_of_another_configuration_is_refused(
    config: Path, kit: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = FederationRun("", config, kit=kit, sites=SITES, site_rules=SiteRules())
    open_federation_run(Path("run"), replace(record, overrides=Overrides(rounds=9)))
    message = complaint_here(capsys, *RUN, config, "--kit", kit, "--out", "run")
    assert "run belongs to a different configuration" in message


def test_a_finished_run_is_printed_again_without_a_network(
    config: Path, kit: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_between_sites(config, Path("run")).collect()
    before = Path("run", "results.json").read_bytes()
    for words in ([*RUN, config, "--kit", kit, "--out", "run"], ["federation", "resume", "run"]):
        capsys.readouterr()
        run_here(*words)
        said = capsys.readouterr().out
        assert "of 1,000, on test records" in " ".join(said.split())
        assert "Model: run/model.safetensors" in said
    assert Path("run", "results.json").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run", "fedminmax.toml"], "required: --kit"),
        (["status"], "required: --kit"),
        (["run", "a.toml", "--kit", "k", "--rounds", "0"], "at least 1"),
        (["run", "a.toml", "--kit", "k", "--wait", "soon"], "90s, 30m"),
        (["run", "a.toml", "--kit", "k", "--reply-timeout", "7"], "90s, 30m"),
        (["run", "a.toml", "--kit", "k", "--minimum-sites", "0"], "at least 1"),
        (["run", "a.toml", "--kit", "k", "--skip-rounds", "-1"], "zero or a positive"),
        (["run", "a.toml", "--kit", "k", "--round-timeout", "0s"], "positive"),
        (["run", "a.toml", "--kit", "k", "--max-step-ratio", "nan"], "positive"),
        *(
            (["run", "a.toml", "--kit", "k", *words], words[0])
            for words in (["--optimality-gap", "0.1"], ["--validation", "0.1"], ["--certify"])
        ),
        (["run", "a.toml", "--kit", "k", "--no-secure-aggregation"], "--no-secure-aggregation"),
        (["stop"], "required: RUN"),
        (["resume", "runs/a", "--rounds", "3"], "--rounds is unknown"),
        (["fly"], "fly"),
    ],
)
def test_bad_words_are_one_line(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["federation", *words])
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert expected in said.err


@pytest.mark.parametrize("action", ACTIONS)
def test_every_action_explains_itself(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["federation", action, "--help"])
    assert ended.value.code == 0
    assert f"example: fedminmax federation {action}" in capsys.readouterr().out


def test_a_folder_with_other_files_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_tables(tmp_path)
    before = sorted(path.name for path in tmp_path.iterdir())
    assert main(["federation", "local", str(config), "--out", str(tmp_path)]) == 2
    assert "has other files and no configuration; choose a new folder" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_finished_run_is_printed_again_and_not_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, run = write_tables(tmp_path), tmp_path / "run"
    run_between_sites(config, run).collect()
    before = {path: path.read_bytes() for path in run.rglob("*") if path.suffix == ".safetensors"}
    run_here("federation", "local", config, "--out", run)
    said = capsys.readouterr()
    assert "of 1,000, on test records" in " ".join(said.out.split())
    assert "starting a server" not in said.err
    assert all(path.read_bytes() == content for path, content in before.items())
    # Other rounds would be another run.
    message = complaint_here(capsys, "federation", "local", config, "--out", run, "--rounds", 9)
    assert "belongs to a different configuration" in message


def test_without_an_action_it_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["federation"]) == 0
    assert "federation local fedminmax.toml" in capsys.readouterr().out
