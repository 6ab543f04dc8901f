"""Whether a run has converged, judged by the training risks that its rounds reported.

The slope at the end alone is misleading: a risk that falls like 1 / t has a slope close to zero,
yet will fall by as much again as it fell over the last half of the rounds. So the run is cut at
T/8, T/4 and T/2, and the mean risks in between are compared. If the risk approaches its limit like
a power of t, its decreases from one interval to the next shrink by the same ratio with every
doubling (1/2 for 1 / t), and the remainder is a geometric series. A slow exponential behind a fast
one, or a straight line, shows up between the last quarters of the rounds instead, as a series over
quarters. ``remaining`` is the larger of the two, truncated where the run would be 32 times as long.

Risks are those of the models that entered each round. If the returned model is an average, means
of risks are used in its place: for a convex loss of a linear model they are not below its risk
(Jensen). Averaging cancels oscillations between rounds; the last model keeps them.

A minimax solution has a second condition, complementary slackness: the adversary puts weight only
on groups with the highest risk. ``weights_gap`` is the worst risk minus the risk under the mean
weights, the half of the duality gap that the log proves. It reveals weights that are still far from
their limit while the risks hardly change.

Nothing is proved about the rest: a risk that is flat for most of the run and would fall later is
not predicted, nor are changes smaller than the digits in the log.
"""

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace

import numpy as np

from fedminmax.core.iterates import Iterate, tail_start
from fedminmax.core.risk_log import MEAN, WORST_GROUP, LoggedRound, RiskLog, mean_known

# Relative to the risk: below what a test on fewer than a million rows can detect, and below the
# third decimal, which is the last one in reports.
TOLERANCE = 0.001
# Relative to the initial risk: a risk that falls to zero has no useful relative tolerance.
TOLERANCE_OF_START = 0.00001
DOUBLINGS = 5
# The intervals between T/8, T/4, T/2 and T have at least two rounds each.
MIN_ROUNDS = 16
BATCHES = 8
# In place of a reason: the method itself knows that it has converged.
WITHIN_GAP = "within its gap"
# In place of a reason: the run stopped because validation rows saw no improvement.
BY_VALIDATION = "no better on validation rows"
WORST_SITE, WORST_RECORDS = "worst site's risk", "risk of the worst-off records"


@dataclass(frozen=True)
class Goal:
    """What a method minimises, as far as risks by group show it.

    ``weights_floor`` is the minimum weight of a group, for a method whose mean weights are the
    best response to its mean model; None for others. Besides, each group keeps ``keep_share`` of
    its share of the rows as weight. ``unlogged`` names the risk that is minimised if it is none of
    those in the log.
    """

    minimax: bool
    weights_floor: float | None = None
    keep_share: float = 0.0
    unlogged: str = ""


@dataclass(frozen=True)
class Convergence:
    """How far a run's training risk may still be from its limit.

    ``reason`` is "converged", or why not: "too few rounds", the risk is "falling", "rising" or
    "swinging", "averaging" if the returned average is still dominated by early rounds, "weights",
    or the "gap" to what the method knows to be possible.
    A run that stopped on validation rows counts as converged, with ``BY_VALIDATION`` as reason.
    ``measure`` is the risk meant: the worst group's, or the mean over rows if that is further from
    its limit and is what the method minimises. ``risk`` is its mean over the last half of the
    rounds, ``slope`` its change per round there, negative if it falls. ``remaining`` is how much it
    may still change (None: too few rounds), ``weights_gap`` how far the weights are from the worst
    group (None: the method has no weights, or the check does not apply). ``rounds_needed`` is an
    estimate; None if there is none, or no more rounds are needed. Of a risk that is not in the
    log, ``risk`` is None and ``remaining`` is a share of it.
    """

    converged: bool
    reason: str
    _: KW_ONLY
    rounds: int
    measure: str
    risk: float | None = None
    slope: float | None = None
    remaining: float | None = None
    weights_gap: float | None = None
    rounds_needed: int | None = None


def stopped_by_validation(found: Convergence) -> Convergence:
    """Mark a run as stopped because further rounds were no better on validation rows."""
    return replace(found, converged=True, reason=BY_VALIDATION, rounds_needed=None)


@dataclass(frozen=True)
class _Movement:
    """How one risk changes: how much more it may change, why, and in how many rounds it is done."""

    measure: str
    risk: float
    _: KW_ONLY
    slope: float
    allowed: float
    remaining: float
    reason: str
    growth: float | None

    @property
    def excess(self) -> float:
        """The remaining change divided by the tolerance: at most 1 if this risk has converged."""
        return self.remaining / self.allowed


def judge_convergence(
    rounds: Sequence[LoggedRound],
    rows: Sequence[int],
    goal: Goal,
    *,
    answer: Iterate | None,
    included: Sequence[bool] | None = None,
    left: float | None = None,
) -> Convergence:
    """Judge a run by its log, which has every round or an evenly spaced subset.

    Args:
        rounds: the log, in order.
        rows: training rows of each group.
        goal: what the method minimises.
        answer: the iterate that it returns; None for a choice or mixture of its own, such as the
            choice by validation rows.
        included: which groups are large enough to count as the worst; None for all.
        left: the relative improvement of its objective that is still possible, if the method
            knows it.
    """
    last = rounds[-1].round if rounds else 0
    if answer is Iterate.BEST:
        answer = None
    chosen = [True] * len(rows) if included is None else included
    if left is not None and rounds:
        return _from_known_gap(rounds[-1], left, rows, chosen, goal)
    log = RiskLog(rounds, rows, chosen) if last >= MIN_ROUNDS else None
    if log is None or not log.included.any():
        return Convergence(
            converged=False, reason="too few rounds", rounds=last, measure=WORST_GROUP
        )
    measures = [WORST_GROUP] if goal.minimax else [WORST_GROUP, MEAN]
    moves = [_movement(log, measure, answer) for measure in measures]
    move = max(moves, key=lambda own: own.excess)
    gap = _weights_gap(log, goal)
    converged = move.excess <= 1.0 and (gap is None or gap <= move.allowed)
    growths = [move.growth, 1.0 if gap is None else max(1.0, gap / move.allowed)]
    return Convergence(
        converged,
        "converged" if converged else move.reason if move.excess > 1.0 else "weights",
        rounds=last,
        measure=move.measure,
        risk=move.risk,
        slope=move.slope,
        remaining=move.remaining,
        weights_gap=gap,
        rounds_needed=None if converged else _rounds_needed(last, growths),
    )


def _from_known_gap(
    last: LoggedRound, left: float, rows: Sequence[int], included: Sequence[bool], goal: Goal
) -> Convergence:
    """Judge a run by the gap that its method knows, which beats any estimate from the log."""
    known = [
        (risk, count, is_included)
        for risk, count, is_included in zip(last.risks, rows, included, strict=True)
        if risk is not None and not math.isnan(risk)
    ]
    converged = left <= TOLERANCE
    reason = WITHIN_GAP if converged else "gap"
    if goal.unlogged:
        own = goal.unlogged
        return Convergence(converged, reason, rounds=last.round, measure=own, remaining=left)
    if goal.minimax:
        measure, risk = WORST_GROUP, max((own[0] for own in known if own[2]), default=0.0)
    else:
        total = sum(count for _, count, _ in known)
        measure, risk = MEAN, sum(risk * count for risk, count, _ in known) / max(total, 1)
    return Convergence(
        converged,
        reason,
        rounds=last.round,
        measure=measure,
        risk=risk,
        slope=0.0,
        remaining=left * risk,
    )


def _movement(log: RiskLog, measure: str, answer: Iterate | None) -> _Movement:
    start, end = log.value(log.risks[0], measure), log.value(log.mean_risks(1 / 2, 1), measure)
    allowed = max(TOLERANCE * end, TOLERANCE_OF_START * start, sys.float_info.min)
    swing, noise = _swings(log, measure)

    def risk(after: float, until: float) -> float:
        risks = log.risks_at(until) if answer is Iterate.LAST else log.mean_risks(after, until)
        return log.value(risks, measure)

    doubled = _steps(risk(1 / 8, 1 / 4), risk(1 / 4, 1 / 2), risk(1 / 2, 1))
    quarters = _steps(risk(1 / 4, 1 / 2), risk(1 / 2, 3 / 4), risk(3 / 4, 1))
    # Three standard errors of a difference: of means over T/4 and T/2 rounds, and over T/4 each.
    bounds = (swing, swing) if answer is Iterate.LAST else (3 * 3**0.5 * noise, 3 * 2 * noise)
    if abs(doubled[1]) > abs(doubled[0]):
        # A late decrease that is already over is judged by its last part: at the pace of the last
        # quarter, a risk that falls like the logarithm of t falls by this much per doubling.
        pace = max(abs(quarters[1]), bounds[1]) * 4 * (7 / 8) * math.log(2)
        doubled = (doubled[0], math.copysign(min(abs(doubled[1]), pace), doubled[1]))
    outlooks = (
        _outlook(doubled, bounds[0], allowed, DOUBLINGS, lambda steps: 2.0**steps),
        _outlook(quarters, bounds[1], allowed, 4 * 2**DOUBLINGS, lambda steps: 1 + steps / 4),
    )
    seen = [own for own in outlooks if own is not None]
    # Means over (T/4, T/2] and (T/2, T] are 3 T / 8 rounds apart, their ends T / 2.
    apart = log.last * (0.5 if answer is Iterate.LAST else 0.375)
    slope = (risk(1 / 2, 1) - risk(1 / 4, 1 / 2)) / apart
    reason = "falling" if slope < 0 else "rising"
    if not seen:
        left = swing if answer is Iterate.LAST else 2 * noise
        seen, reason = [_Outlook(left, max(1.0, (left / allowed) ** 2))], "swinging"
    worst = max(seen, key=lambda own: own.remaining)
    if answer in (Iterate.AVERAGE, Iterate.TAIL_AVERAGE):
        left = 0.0 if reason == "swinging" else min(worst.remaining, end)
        lag = _lag_of_average(log, measure, end + math.copysign(left, slope), answer)
        if lag > worst.remaining:
            reason = reason if worst.remaining > allowed else "averaging"
            worst = _Outlook(lag, max(1.0, lag / allowed))
    # Losses are not negative, so a risk cannot fall by more than itself.
    remaining = worst.remaining if reason == "rising" else min(worst.remaining, end)
    return _Movement(
        measure,
        end,
        slope=slope,
        allowed=allowed,
        remaining=remaining,
        reason=reason,
        growth=worst.growth,
    )


def _steps(first: float, second: float, third: float) -> tuple[float, float]:
    return second - first, third - second


@dataclass(frozen=True)
class _Outlook:
    """The remaining change, and the factor by which rounds must grow (None: unknown)."""

    remaining: float
    growth: float | None


def _outlook(
    moves: tuple[float, float],
    noise: float,
    allowed: float,
    steps: int,
    growth: Callable[[int], float],
) -> _Outlook | None:
    """Extrapolate two moves as a geometric series of ``steps`` steps.

    ``growth`` maps steps to the factor by which the rounds grow. None: the moves are within noise.
    """
    earlier, later = moves
    if abs(later) <= noise:
        return None
    if earlier * later <= 0:
        # It changed direction: treated as an oscillation.
        return _Outlook(abs(later), max(1.0, abs(later) / allowed))
    ratio = min(1.0, later / earlier)
    ahead = np.cumsum(abs(later) * ratio ** np.arange(2 * steps + 1, dtype=np.float64))
    left = ahead[steps:] - ahead[: steps + 1]
    done = np.flatnonzero(left <= allowed)
    return _Outlook(float(left[0]), growth(int(done[0])) if len(done) else None)


def _swings(log: RiskLog, measure: str) -> tuple[float, float]:
    """Return by how much the risk rises within the last half, and the noise of that half's mean.

    The noise is a standard error, from means of batches of rounds; second differences remove a
    trend.
    """
    half = log.between(1 / 2, 1)
    values = np.array([log.value(risks, measure) for risks in log.latest[half]])
    swing = float((values - np.minimum.accumulate(values)).max())
    own = log.risks[half]
    if measure == WORST_GROUP:
        # For the group that is worst on average: the worst group may change every round.
        own = own[:, log.included]
        own = own[:, [int(np.nanargmax(mean_known(own)))]]
    own = own[~np.isnan(own).all(axis=1)]
    if len(own) < 2 * BATCHES:
        return swing, 0.0
    batches = [mean_known(part) for part in np.array_split(own, BATCHES)]
    means = [
        float(part[0]) if measure == WORST_GROUP else log.value(part, measure) for part in batches
    ]
    bends = np.diff(means, 2)
    return swing, math.sqrt(float((bends**2).mean()) / 6.0 / BATCHES)


def _lag_of_average(log: RiskLog, measure: str, limit: float, answer: Iterate) -> float:
    """Return how far an average of models lags behind because of the early models in it.

    The worst of several risks has a kink at its minimum: the average's excess is at most the
    average of its rounds' excesses. A mean risk is smooth there: if it is quadratic, the root of
    the excess is a norm, so the root for an average is at most the average of the roots.
    """
    counted = log.numbers >= (tail_start(log.last) if answer is Iterate.TAIL_AVERAGE else 1)
    # In a log of some rounds, each line stands for all rounds since the previous line.
    rounds = np.diff(log.numbers, prepend=0) * counted
    above, roots, end = 0.0, 0.0, 1.0
    while end * log.last >= 1:
        chosen = log.between(end / 2, end) & counted
        if chosen.any():
            share = float(rounds[chosen].sum() / rounds.sum())
            own = log.value(mean_known(log.risks[chosen]), measure) - limit
            above += share * own
            roots += share * math.sqrt(abs(own))
        end /= 2
    return abs(above) if measure == WORST_GROUP else roots**2


def _weights_gap(log: RiskLog, goal: Goal) -> float | None:
    """Return how much an adversary could gain over the mean weights, given the mean risks."""
    if not goal.minimax or goal.weights_floor is None or log.weights.shape != log.risks.shape:
        return None
    # Groups that are too small keep their share; the adversary does not choose them.
    risks = log.mean_risks(1 / 2, 1)[log.included]
    weights = log.weights[log.between(1 / 2, 1)].mean(axis=0)[log.included]
    floor, shares = goal.weights_floor, log.rows[log.included] / log.rows.sum()
    free = (1.0 - goal.keep_share) * float(shares.sum()) - floor * len(risks)
    best = free * risks.max() + (floor + goal.keep_share * shares) @ risks
    return max(0.0, float(best - weights @ risks))


def _rounds_needed(rounds: int, growths: Sequence[float | None]) -> int | None:
    """Return the estimate with two digits; None if it is unknown or beyond the range examined."""
    known = [growth for growth in growths if growth is not None]
    if len(known) < len(growths) or max(known) > 2.0**DOUBLINGS:
        return None
    wanted = max(2.0, *known) * rounds
    unit = 10.0 ** max(0, math.floor(math.log10(wanted)) - 1)
    return int(math.ceil(wanted / unit) * unit)
