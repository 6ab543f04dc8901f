"""Sums of three sites or more are masked unless somebody wrote down that they are not to be."""

import io
import json
import shutil
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from fedminmax.cli import federation_actions
from fedminmax.network.flare.federation_file import DEFAULTS_FILE
from fedminmax.network.wire.plan import NetworkPlan, digest_of
from fedminmax.runs.federation import FederationRun, plan_of
from tests.cli.command import complaint_here, run_here
from tests.cli.kits import DESCRIBED, SETTINGS, check
from tests.network.masked_problem import listed_config

THREE = DESCRIBED.replace('["north", "south"]', '["north", "south", "west"]')
OFF = "[federation]\nsecure_aggregation = false\n"
MASKED, SEEN = "learns only totals over at least 3 sites", "sees every reply of every site"
ANN = Path("kits/people/ann@lab.org")


@pytest.fixture(scope="module")
def kits_of_three(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Kits, made once since keys take time, and what the command said."""
    folder = tmp_path_factory.mktemp("three")
    listed_config(folder)
    (folder / "federation.toml").write_text(THREE)
    words = ["--config", folder / "fedminmax.toml", "--out", folder / "kits"]
    with redirect_stdout(io.StringIO()) as said:
        run_here("federation", "create", folder / "federation.toml", *words)
    return folder / "kits", said.getvalue()


@pytest.fixture
def kits(tmp_path: Path, kits_of_three: tuple[Path, str]) -> str:
    """Put them into the test's folder."""
    made, said = kits_of_three
    shutil.copytree(made, tmp_path / "kits")
    return said


class Submitted(BaseException):
    """The plan that would now go to the server."""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration without a word about masks; no run leaves this process."""
    monkeypatch.chdir(tmp_path)
    listed_config(tmp_path)

    def submit(_: object, plan: NetworkPlan) -> None:
        raise Submitted(plan)

    monkeypatch.setattr(federation_actions, "follow", submit)
    return tmp_path / "fedminmax.toml"


def submitted(*words: object) -> NetworkPlan:
    with pytest.raises(Submitted) as caught:
        run_here("federation", *words)
    plan = caught.value.args[0]
    assert isinstance(plan, NetworkPlan)
    return plan


def is_masked(*words: object) -> bool:
    return submitted(*words).secure_aggregation is not None


def test_kits_of_three_sites_mask_for_coordinator_and_sites_alike(
    config: Path, kits: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert MASKED in kits
    assert "yours are masked" in Path("kits/sites/north/README.md").read_text()
    assert is_masked("run", config, "--kit", ANN, "--out", "one")
    assert check(tmp_path, config=config) == 0
    assert MASKED in capsys.readouterr().out
    agreed = json.loads(SETTINGS.read_text())["plan"]
    config.write_text(config.read_text() + OFF)
    assert not is_masked("run", config, "--kit", ANN, "--out", "two")
    assert check(tmp_path, config=config) == 0
    assert f"NO secure aggregation: the server {SEEN}" in capsys.readouterr().out
    # A site that checked the one refuses the other.
    assert json.loads(SETTINGS.read_text())["plan"] != agreed


@pytest.mark.usefixtures("kits")
def test_kits_that_do_not_say_it_are_refused(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "federation.json is missing or damaged; copy the kit again"
    for place in Path("kits").rglob(DEFAULTS_FILE):
        place.unlink()
    assert words in complaint_here(capsys, "federation", "run", config, "--kit", ANN)
    assert check(tmp_path, config=config) == 2
    assert words in capsys.readouterr().err
    (ANN / DEFAULTS_FILE).write_text("{")
    assert words in complaint_here(capsys, "federation", "run", config, "--kit", ANN)


@pytest.mark.usefixtures("kits")
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (('name = "fedminmax"', 'name = "afl"'), "'afl' needs each site's own loss"),
        (('values = { sex = ["Female", "Male"] }', ""), "values of 'sex' are not listed"),
    ],
)
def test_between_sites_nothing_is_unmasked_without_a_word_of_the_configuration(
    change: tuple[str, str], reason: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(config.read_text().replace(*change))
    Path("other.toml").write_text(THREE)
    for words in (
        ("create", "other.toml", "--config", config, "--out", "others"),
        ("run", config, "--kit", ANN),
    ):
        message = complaint_here(capsys, "federation", *words)
        assert reason in message
        assert "write secure_aggregation = false in [federation]" in message
    assert not Path("runs").exists()
    assert not Path("others").exists()
    config.write_text(config.read_text() + OFF)
    assert not is_masked("run", config, "--kit", ANN)


@pytest.mark.usefixtures("kits")
def test_no_option_of_run_changes_what_the_sites_agreed_to(config: Path, tmp_path: Path) -> None:
    config.write_text(config.read_text().replace("[data]", "[data]\nvalidation = 0.2"))
    assert check(tmp_path, config=config) == 0
    words = ("--rounds", "1", "--patience", "3", "--minimum-sites", "3", "--max-step-ratio", "50")
    plan = submitted("run", config, "--kit", ANN, *words)
    assert (plan.runs[0].rounds, plan.runs[0].patience) == (1, 3)
    assert digest_of(plan) == json.loads(SETTINGS.read_text())["plan"]


@pytest.mark.usefixtures("kits")
def test_two_of_three_sites_are_too_few(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("federation", "run", config, "--kit", ANN, "--sites", "north,south")
    assert "2 sites take part, and at least 3" in complaint_here(capsys, *words)


def test_on_one_machine_masks_are_on_where_they_can_be(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def begin(_: object, record: FederationRun, *__: object) -> None:
        raise Submitted(plan_of(record, record.read_config()))

    monkeypatch.setattr(federation_actions, "_run", begin)
    assert is_masked("local", config, "--out", "one")
    assert not is_masked("local", config, "--out", "two", "--no-secure-aggregation")
    capsys.readouterr()
    config.write_text(config.read_text().replace('name = "fedminmax"', 'name = "afl"'))
    assert not is_masked("local", config, "--out", "three")
    said = capsys.readouterr().err
    assert "sums cannot be masked: method 'afl' needs each site's own loss" in said
    message = complaint_here(capsys, "federation", "local", config, "--secure-aggregation")
    assert "'afl' needs each site's own loss" in message
