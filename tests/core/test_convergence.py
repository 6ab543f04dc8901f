"""The verdict on curves whose limits are known, so that what is left to fall is known too."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from fedminmax.core.convergence import Convergence, Goal, judge_convergence
from fedminmax.core.iterates import Iterate

LIMIT = 0.25
WORST = Goal(minimax=True)
BOTH = Goal(minimax=False)
WEIGHED = Goal(minimax=True, weights_floor=0.0)


@dataclass(frozen=True)
class Line:
    """A line of a log."""

    round: int
    risks: tuple[float | None, ...]
    weights: tuple[float, ...] = ()


def log_of(rounds: int, risks: Callable[[int], Sequence[float | None]]) -> list[Line]:
    """A log of these risks by group; the first model is round 1's."""
    return [Line(number, tuple(risks(number))) for number in range(1, rounds + 1)]


def judge(
    rounds: int,
    curve: Callable[[int], float],
    goal: Goal = WORST,
    answer: Iterate | None = Iterate.LAST,
) -> Convergence:
    """The verdict on one group's curve."""
    return judge_convergence(log_of(rounds, lambda t: [curve(t)]), [10], goal, answer=answer)


@pytest.mark.parametrize("answer", [Iterate.LAST, Iterate.TAIL_AVERAGE, None])
@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("share_left", [0.01, 0.003, 0.0003, 0.00003])
def test_powers_of_the_round(share_left: float, power: float, answer: Iterate) -> None:
    rounds = 600
    size = share_left * LIMIT * rounds**power
    found = judge(rounds, lambda t: LIMIT + min(0.25, size * t**-power), answer=answer)
    assert found.converged == (share_left < 0.001)
    # The last value is this far from the limit; averages over the last half are somewhat further.
    assert found.remaining is not None
    assert 0.5 * share_left < found.remaining / LIMIT < 5 * share_left
    assert found.slope is not None
    assert found.slope < 0
    assert found.reason == ("converged" if found.converged else "falling")


def test_a_slow_fall_with_next_to_no_slope_is_seen() -> None:
    # Falls by 0.00005% of itself in the last round, and is still 3% from its limit.
    rounds = 20_000
    found = judge(rounds, lambda t: LIMIT + 0.02 * t**-0.1)
    assert not found.converged
    assert found.reason == "falling"


@pytest.mark.parametrize("rate", [1e-2, 1e-3, 1e-4])
def test_a_straight_line_is_far_from_its_end(rate: float) -> None:
    # A learning rate that is far too small: hardly any slope, and everything still to come.
    found = judge(500, lambda t: 0.5 * (1 - rate * t / 500))
    assert not found.converged
    assert found.rounds_needed is None


def test_exponentials() -> None:
    assert judge(500, lambda t: LIMIT + 0.25 * math.exp(-t / 30)).converged
    assert not judge(500, lambda t: LIMIT + 0.25 * math.exp(-t / 300)).converged


def test_a_second_slow_fall_behind_a_fast_one() -> None:
    # Badly conditioned: the fast direction is done, the slow one has 2% to go.
    found = judge(500, lambda t: LIMIT + 0.2 * math.exp(-t / 20) + 0.005 * math.exp(-t / 20_000))
    assert not found.converged


def test_a_risk_that_falls_to_nothing_is_done_when_next_to_nothing_is_left() -> None:
    assert not judge(500, lambda t: 0.5 / t).converged
    assert judge(500, lambda t: 0.5 * math.exp(-t / 10)).converged
    assert judge(500, lambda _: 0.0).converged


def test_swings_matter_to_the_last_model_but_not_to_an_average() -> None:
    def curve(t: int) -> float:
        return LIMIT + 0.005 * math.sin(t / 3)

    assert judge(2000, curve, answer=Iterate.TAIL_AVERAGE).converged
    last = judge(2000, curve, answer=Iterate.LAST)
    assert (last.converged, last.reason) == (False, "swinging")


def test_noise_is_no_fall() -> None:
    noise = np.random.default_rng(0).standard_normal(4000)

    def curve(size: float) -> Callable[[int], float]:
        return lambda t: LIMIT + size * float(noise[t - 1])

    assert judge(4000, curve(0.002), answer=Iterate.TAIL_AVERAGE).converged
    found = judge(200, curve(0.02), answer=Iterate.TAIL_AVERAGE)
    assert (found.converged, found.reason) == (False, "swinging")


def test_the_average_of_all_rounds_keeps_its_start() -> None:
    # The last model is done; by hand, 20 early rounds at 0.5 are 1% of 500 rounds' average.
    def curve(t: int) -> float:
        return 0.5 if t <= 20 else LIMIT

    assert judge(500, curve, answer=Iterate.LAST).converged
    found = judge(500, curve, answer=Iterate.AVERAGE)
    assert found.remaining == pytest.approx(0.25 * 20 / 500, rel=0.05)
    assert (found.converged, found.reason) == (False, "averaging")


def test_a_rise_is_no_end_either() -> None:
    found = judge(500, lambda t: LIMIT - 1.0 / t)
    assert (found.converged, found.reason) == (False, "rising")


def test_the_mean_counts_where_it_is_what_the_method_minimises() -> None:
    log = log_of(500, lambda t: [0.4, 0.2 + 0.5 / t**0.5])
    assert judge_convergence(log, [10, 90], WORST, answer=Iterate.LAST).converged
    found = judge_convergence(log, [10, 90], BOTH, answer=Iterate.LAST)
    assert (found.converged, found.measure) == (False, "mean risk")


def test_the_worst_group_counts_where_the_mean_is_minimised() -> None:
    log = log_of(500, lambda t: [0.4 + 0.5 / t**0.5, 0.2])
    found = judge_convergence(log, [1, 9_999], BOTH, answer=Iterate.LAST)
    assert (found.converged, found.measure) == (False, "worst group's risk")


def test_a_group_that_is_too_small_is_not_the_worst() -> None:
    """Neither its risk counts, nor that it has its share of the weights and no more."""
    lines = [Line(t, (0.4, 0.3, 0.9 + 5.0 / t), (0.9, 0.0, 0.1)) for t in range(1, 501)]
    counts, answer = [80, 10, 10], Iterate.TAIL_AVERAGE
    assert not judge_convergence(lines, counts, WEIGHED, answer=answer).converged
    included = [True, True, False]
    found = judge_convergence(lines, counts, WEIGHED, answer=answer, included=included)
    assert found.converged
    assert found.risk == pytest.approx(0.4)
    assert found.weights_gap == pytest.approx(0.0, abs=1e-15)


def test_weights_that_have_not_got_far() -> None:
    # Risks stand still, but half of the weight is on a group that is better off by 0.1.
    lines = [Line(t, (0.4, 0.3), (0.5, 0.5)) for t in range(1, 501)]
    found = judge_convergence(lines, [50, 50], WEIGHED, answer=Iterate.TAIL_AVERAGE)
    assert (found.converged, found.reason) == (False, "weights")
    assert found.weights_gap == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("weights", "floor"), [((1.0, 0.0), 0.0), ((0.9, 0.1), 0.1)], ids=["worst", "at the floor"]
)
def test_weights_that_are_where_they_belong(weights: tuple[float, float], floor: float) -> None:
    lines = [Line(t, (0.4, 0.3), weights) for t in range(1, 501)]
    goal = Goal(minimax=True, weights_floor=floor)
    found = judge_convergence(lines, [50, 50], goal, answer=Iterate.TAIL_AVERAGE)
    assert found.converged
    assert found.weights_gap == pytest.approx(0.0, abs=1e-15)


def test_the_rounds_needed_are_enough_by_its_own_measure() -> None:
    def curve(t: int) -> float:
        return LIMIT + 0.5 / t

    rounds = 500
    needed = judge(rounds, curve).rounds_needed
    # 0.5 / t is 0.1% of the limit in round 2,000.
    assert needed == 2000
    assert not judge(needed // 2, curve).converged
    assert judge(needed + needed // 2, curve).converged


@pytest.mark.parametrize("rounds", [0, 1, 15])
def test_too_few_rounds(rounds: int) -> None:
    found = judge(rounds, lambda _: LIMIT)
    assert (found.converged, found.reason, found.remaining) == (False, "too few rounds", None)


@pytest.mark.parametrize("share_left", [0.01, 0.0001])
def test_units_and_gaps_in_the_log_change_nothing(share_left: float) -> None:
    def curve(t: int) -> float:
        return LIMIT + share_left * LIMIT * 1000 / t

    whole = log_of(1000, lambda t: [curve(t), 0.1])
    large = log_of(1000, lambda t: [1e6 * curve(t), 1e5])
    tenth = [line for line in whole if line.round <= 10 or line.round % 10 == 0]
    holes = [
        Line(line.round, (None if line.round % 3 else line.risks[0], line.risks[1]))
        for line in whole
    ]
    verdicts = {
        judge_convergence(log, [50, 50], BOTH, answer=Iterate.TAIL_AVERAGE).converged
        for log in (whole, large, tenth, holes)
    }
    assert verdicts == {share_left < 0.001}


def test_a_group_that_nobody_has_is_not_judged() -> None:
    log = log_of(100, lambda _: [None, LIMIT])
    assert judge_convergence(log, [50, 50], BOTH, answer=Iterate.LAST).converged
    nobody = log_of(100, lambda _: [None, None])
    assert not judge_convergence(nobody, [50, 50], BOTH, answer=Iterate.LAST).converged


def test_a_round_that_knew_only_a_group_that_is_skipped_is_skipped_too() -> None:
    """The first half has group 0 alone, the second half group 1 in every round."""
    log = log_of(40, lambda t: [1.0 if t < 5 else None, LIMIT if t > 2 else None])
    found = judge_convergence(log, [50, 50], BOTH, answer=Iterate.LAST)
    assert found.converged
    assert found.risk == pytest.approx(LIMIT)
