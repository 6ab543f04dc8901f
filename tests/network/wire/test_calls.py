"""How long the server waits for a site: its own time, and not for one that is gone."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fedminmax.network.server.log import Attendance
from fedminmax.network.wire.calls import (
    CHECKS_UNTIL_GONE,
    MIN_SECONDS,
    NO_LIMITS,
    POLL_SECONDS,
    Answer,
    Endpoint,
    wait_for_all,
)
from fedminmax.network.wire.site_rules import SiteRules

SECONDS_OF_A_LOOK = 2.0


@dataclass
class MadeUpTime:
    """A clock that waiting moves on, answers by the second at which they come, and who lives."""

    comes: dict[float, Answer]
    living: Collection[str]
    now: float = 0.0
    looks: list[list[str]] = field(default_factory=list)

    def next_within(self, seconds: float) -> Answer | None:
        due = min(self.comes, default=float("inf"))
        if due <= self.now + seconds:
            self.now = max(self.now, due)
            return self.comes.pop(due)
        self.now += seconds
        return None

    def look(self, sites: list[str]) -> Collection[str]:
        self.looks.append(sites)
        self.now += SECONDS_OF_A_LOOK
        return self.living

    def wait(self, limits: dict[str, float]) -> list[tuple[float, Answer]]:
        answers = wait_for_all(self, limits, self.look, lambda: self.now)
        return [(self.now, answer) for answer in answers]


def test_answers_are_handed_on_as_they_come_and_nobody_is_asked_whether_it_is_there() -> None:
    time = MadeUpTime({1.0: Answer("b"), 2.0: Answer("a")}, [])
    came = time.wait({"a": 600.0, "b": 600.0})
    assert [(now, answer.site) for now, answer in came] == [(1.0, "b"), (2.0, "a")]
    assert time.looks == []


def test_a_site_that_is_gone_is_not_waited_for() -> None:
    """It would cost the whole ten minutes otherwise."""
    time = MadeUpTime({1.0: Answer("a")}, ["a"])
    *_, (now, answer) = time.wait({"a": 600.0, "b": 600.0})
    assert (answer.site, answer.late) == ("b", True)
    assert answer.failure == "b is no longer connected"
    assert now == CHECKS_UNTIL_GONE * (POLL_SECONDS + SECONDS_OF_A_LOOK)
    assert time.looks == [["b"]] * CHECKS_UNTIL_GONE


def test_a_site_that_works_is_waited_for_until_its_own_limit() -> None:
    time = MadeUpTime({300.0: Answer("a")}, ["a", "b"])
    came = time.wait({"a": 600.0, "b": 40.0})
    assert [answer.site for _, answer in came] == ["b", "a"]
    assert came[0][1].failure == "b did not answer within 40 seconds"
    assert came[0][1].late
    assert came[1][1].failure is None


def test_a_site_that_is_missing_once_is_waited_for() -> None:
    class Blinking(MadeUpTime):
        def look(self, sites: list[str]) -> Collection[str]:
            self.living = ["a"] if len(self.looks) % 2 else []
            return super().look(sites)

    time = Blinking({100.0: Answer("a")}, [])
    assert [answer.failure for _, answer in time.wait({"a": 600.0})] == [None]


def test_a_late_answer_of_one_that_was_given_up_is_dropped() -> None:
    time = MadeUpTime({50.0: Answer("b", b"late"), 60.0: Answer("a")}, ["a", "b"])
    came = time.wait({"a": 600.0, "b": 10.0})
    assert [answer.message for _, answer in came] == [None, None]


def test_a_site_that_misses_again_is_left_out_for_twice_as_many_rounds() -> None:
    """Gone for good, it is asked in 7 of 900 rounds instead of every 11th."""
    attendance = Attendance(SiteRules(skip_rounds=10))
    asked = []
    for number in range(1, 901):
        if "a" not in attendance.away(number):
            asked.append(number)
            attendance.missed("a", number)
            attendance.missed("a", number)
    assert asked == [1, 12, 33, 74, 155, 316, 637]
    assert attendance.away(638) == {"a": "a was too late and is asked again in round 1278"}


def nobody(
    sites: Sequence[str],
    endpoint: Endpoint,
    payload: Mapping[str, object],  # noqa: ARG001 - nothing is sent
    seconds: Mapping[str, float] = NO_LIMITS,  # noqa: ARG001 - nobody takes long here
) -> Iterator[Answer]:
    """Nobody is connected."""
    assert endpoint is Endpoint.PRESENT
    return (Answer(site, failure=f"{site} is gone") for site in sites)


def test_a_site_that_is_back_begins_anew() -> None:
    attendance = Attendance(SiteRules(skip_rounds=2))
    for number in (1, 4):
        assert attendance.away(number) == {}
        attendance.missed("a", number)
    assert attendance.find_gone(nobody, ["a"], 4) == ["a"]
    assert set(attendance.away(8)) == {"a"}
    assert attendance.away(9) == {}
    attendance.came("a", 1.0)
    assert attendance.find_gone(nobody, ["a"], 9) == []
    attendance.missed("a", 10)
    assert set(attendance.away(12)) == {"a"}
    assert attendance.away(13) == {}


def test_how_long_a_site_may_take_follows_its_own_times() -> None:
    attendance = Attendance(SiteRules(reply_timeout=600.0))
    assert attendance.seconds_for("slow") == 600.0
    attendance.came("slow", 20.0)
    attendance.came("slow", 1.0)
    attendance.came("quick", 0.02)
    assert attendance.seconds_for("slow") == 200.0
    assert attendance.seconds_for("quick") == MIN_SECONDS
    attendance.came("slow", 100.0)
    assert attendance.seconds_for("slow") == 600.0


def test_nobody_takes_longer_than_the_run_would_wait() -> None:
    attendance = Attendance(SiteRules(reply_timeout=600.0, round_timeout=120.0))
    assert attendance.seconds_for("new") == 120.0
    impatient = Attendance(SiteRules(reply_timeout=5.0, round_timeout=1.0))
    assert impatient.seconds_for("new") == 5.0
