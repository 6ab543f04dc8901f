"""`fedminmax federation run | status | stop | resume`: mistakes that show before any network.

`fedminmax federation local`: mistakes before anything is started.

What a coordinator is told while a run goes on: each warning once, with the round it came in.
"""

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest

from fedminmax.cli import federation_actions
from fedminmax.cli.federation_actions import follow
from fedminmax.cli.main import main
from fedminmax.cli.terminal import Display
from fedminmax.config.planned_runs import PlannedRun
from fedminmax.config.read import Overrides, read_config
from fedminmax.network.flare.federation_file import write_masked_by_default, write_sites_of
from fedminmax.network.server.log import Event, LiveRound, Notice
from fedminmax.network.wire.plan import NetworkPlan
from fedminmax.network.wire.site_rules import SiteRules
from fedminmax.runs.federation import FederationRun, open_federation_run
from fedminmax.training.round_record import RoundRecord
from tests.cli.command import complaint_here, run_here
from tests.network.network_problem import SITES, plan_of, write_tables
from tests.runs.network_runs import run_between_sites
from tests.training.made_up_rounds import made_up_round

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
        assert "per 1,000, on test records" in " ".join(said.split())
        assert "fedminmax report run " in said
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
            for words in (["--set", "data.validation=0.1"], ["--certify"])
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
    assert "per 1,000, on test records" in " ".join(said.out.split())
    assert "starting a server" not in said.err
    assert all(path.read_bytes() == content for path, content in before.items())
    # Other rounds would be another run.
    message = complaint_here(capsys, "federation", "local", config, "--out", run, "--rounds", 9)
    assert "belongs to a different configuration" in message


def test_without_an_action_it_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["federation"]) == 0
    assert "federation local fedminmax.toml" in capsys.readouterr().out


GROUPS = ("Female", "Male [all]")
AWAY = {"south": "south is not connected"}


@pytest.fixture
def plan(tmp_path: Path) -> NetworkPlan:
    runs = [PlannedRun("fedminmax", {}, 4), PlannedRun("fedavg", {}, 2)]
    return plan_of(read_config(write_tables(tmp_path)), runs)


def live(*rounds: RoundRecord, run: int = 0) -> Generator[Event]:
    yield from (LiveRound(run, entry, GROUPS) for entry in rounds)


def test_a_run_without_trouble_is_quiet(
    plan: NetworkPlan, capsys: pytest.CaptureFixture[str]
) -> None:
    follow(live(*(made_up_round(number) for number in (1, 2, 3, 4))), plan)
    follow(live(made_up_round(1), run=1), plan)
    assert capsys.readouterr() == ("", "")


def test_warnings_are_said_once_with_their_round(
    plan: NetworkPlan, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds = [
        made_up_round(1),
        made_up_round(2, refused=AWAY),
        made_up_round(3, risks=(0.5, None), refused=AWAY),
        made_up_round(4, risks=(0.5, None), refused=AWAY | {"west": "west sent NaN; refused"}),
    ]
    follow(live(*rounds), plan)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        "fedminmax: round 2: continues without it: south is not connected",
        "fedminmax: round 3: no site that answered has group 'Male [all]': its weight is kept",
        "fedminmax: round 4: continues without it: west sent NaN; refused",
    ]


def test_a_round_of_which_nobody_knows_a_risk_can_be_shown(
    plan: NetworkPlan, capsys: pytest.CaptureFixture[str]
) -> None:
    follow(live(made_up_round(1, risks=(None, None))), plan)
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_the_highest_risks_beside_the_bar_are_not_those_of_small_groups(
    plan: NetworkPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A risk of two rows says nothing, and training is not for them."""
    shown: list[str] = []
    monkeypatch.setattr(Display, "describe", lambda _, words: shown.append(words))

    def live_with_a_small_group() -> Generator[Event]:
        yield LiveRound(0, made_up_round(1, risks=(0.25, 0.9)), GROUPS, GROUPS[1:])

    follow(live_with_a_small_group(), plan)
    assert "Female 0.25" in shown[-1]
    assert "Male" not in shown[-1]


def test_news_is_told_as_it_comes(plan: NetworkPlan, capsys: pytest.CaptureFixture[str]) -> None:
    def news() -> Generator[Event]:
        yield Notice("begins without south: not connected")
        yield from live(made_up_round(1))

    follow(news(), plan)
    assert capsys.readouterr().err == "fedminmax: begins without south: not connected\n"


def test_a_reader_who_has_had_enough_ends_the_connection(
    plan: NetworkPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in `fedminmax federation local ... 2>&1 | head`: else its threads would never end."""
    ended: list[bool] = []

    def news() -> Generator[Event]:
        try:
            yield Notice("the first line")
            yield Notice("the second line")
        finally:
            ended.append(True)

    def broken(_: str) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(federation_actions, "say", broken)
    events = news()
    with pytest.raises(BrokenPipeError):
        follow(events, plan)
    assert ended == [True]
