"""What a coordinator is told while a run goes on: each warning once, with the round it came in."""

from collections.abc import Generator
from pathlib import Path

import pytest

from fedminmax.cli import federation_runs
from fedminmax.cli.federation_runs import follow
from fedminmax.cli.terminal import Display
from fedminmax.config.planned_runs import PlannedRun
from fedminmax.config.read import read_config
from fedminmax.network.server.news import Event, LiveRound, Notice
from fedminmax.network.wire.plan import NetworkPlan
from fedminmax.training.round_record import RoundRecord
from tests.network.network_problem import plan_of, write_tables
from tests.training.made_up_rounds import made_up_round

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
    monkeypatch.setattr(Display, "rename_run", lambda _, words: shown.append(words))

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

    monkeypatch.setattr(federation_runs, "say", broken)
    events = news()
    with pytest.raises(BrokenPipeError):
        follow(events, plan)
    assert ended == [True]
