"""The server for linear models: from sums with curvature to the next candidate model.

With loss, gradient and curvature sums the server has a quadratic model of every player's risk (a
player is a group, or a holder) and goes to the minimum of their maximum: the weights are those that
will be optimal after the step, not those that were optimal before it. Players that may not be
chosen keep their share (see ``core.simplex``). A trust region in the manner of Levenberg and
Marquardt (More: The Levenberg-Marquardt algorithm, 1978) makes the steps safe for every data set
with the same settings: a failed step costs one round, never the run. For squared error the
quadratic model is exact: one round of sums is the whole problem.

With cross-entropy or squared error and a ridge, the sums also prove a lower bound (see
``core.certificate``).

Risks of two rounds can be compared only if both are on all rows. If holders are missing, the same
candidate is sent again, a few times. If they stay away, every candidate is kept, and the quadratics
are averages over rounds, each moved to the newest candidate; round t has weight t, so what was
measured far away fades. The averages of rounds with changing holders approach the risks on all
rows.

| symbol         | name                            |
|----------------|---------------------------------|
| theta          | state.parameters, the next candidate |
| best theta     | state.best                      |
| mu             | state.weights                   |
| r, g, H        | state.risks, slopes, curvature  |
| m              | state.structure.ridge           |
| epsilon        | epsilon                         |
"""

import math
from dataclasses import KW_ONLY, dataclass, replace

import torch
from torch import Tensor

from fedminmax.core.certificate import (
    Certificate,
    Cuts,
    Errors,
    RowSize,
    cuts_at,
    errors_at,
    errors_of_quadratics,
    lower_bound,
)
from fedminmax.core.linear_structure import LinearStructure
from fedminmax.core.max_of_quadratics import Quadratics, highest_mix, minimise_max
from fedminmax.core.simplex import FixedShares
from fedminmax.methods.shared.replies import RiskSums

# Maximum number of second derivatives that a server stores: 160 MB.
MAX_CURVATURE = 20_000_000
# A step is good if the worst risk falls by half of the predicted decrease, and fails below a tenth.
GOOD_SHARE, MIN_SHARE = 0.5, 0.1
FIRST_DAMPING = 1e-3
MIN_DAMPING, MAX_DAMPING = 1e-12, 1e12
DAMPING_FACTOR = 10.0
MAX_CUT_ROUNDS = 3
PREDICTION_FACTOR = 100.0
# Added to each curvature, relative to its column, which may have any unit.
MIN_CURVATURE = 1e-12
# Smaller gains, relative to the risk before the step, are rounding.
UNSEEN = 1e-13
# A start this many times as bad as a model of zeros is replaced by zeros; that costs a round.
FAR_OFF = 1.5
# How often in a row a candidate is sent again because holders were missing.
MAX_REPEATS = 3


@dataclass(frozen=True, eq=False)
class SecondOrderState:
    """The next candidate, the best model so far with what is known there, and the bounds.

    ``damping`` is the trust region's, relative to ``scale``, the largest curvature seen for each
    parameter. ``promised`` is the predicted decrease at the next candidate; for squared error,
    which determines that candidate's risk, what one more step would gain. ``cuts`` are linear
    lower bounds on the risks: constant and slope. ``upper`` and ``lower`` bound the game's value;
    lower is minus infinity if nothing is proved. ``answer`` is the worst risk of the selected
    model, with its penalty; infinite unless it was measured on all rows. ``seen`` has the rows
    behind each player's risk, weighted by round, and ``repeats`` is how often in a row the
    candidate was sent again. ``size`` determines rounding errors.
    """

    parameters: Tensor
    weights: Tensor
    _: KW_ONLY
    best: Tensor
    structure: LinearStructure
    counts: Tensor
    fixed: FixedShares
    size: RowSize
    risks: Tensor
    slopes: Tensor
    curvature: Tensor
    scale: Tensor
    cuts: Tensor
    damping: float
    promised: float
    upper: float
    lower: float
    answer: float
    seen: Tensor
    repeats: int
    rounds: int

    @property
    def is_exact(self) -> bool:
        """Whether the risks are those of the best model on all rows."""
        return math.isfinite(self.answer)

    @property
    def certificate(self) -> Certificate | None:
        """What is proved about the selected model; None if nothing is."""
        if not math.isfinite(self.lower) or not self.is_exact:
            return None
        best, answer = (self.structure.to_free(own) for own in (self.best, self.selected[0]))
        errors = errors_of_quadratics(
            errors_at(self.structure, self.size, float(best.norm()), float(self.risks.max())),
            self.size,
            float((answer - best).norm()),
            len(answer),
        )
        ridge = self.structure.ridge
        penalty = 0.5 * ridge * float(answer @ answer)
        return Certificate(self.answer + errors.value, self.lower, penalty, ridge)

    def worst_of(self, risks: Tensor) -> float:
        """Return the adversary's maximum over these risks of the next candidate, rounded up.

        It includes the penalty; players that may not be chosen keep their share.
        """
        point = self.structure.to_free(self.parameters)
        worst = float(self.fixed.mix(risks).max()) + 0.5 * self.structure.ridge * float(
            point @ point
        )
        return worst + errors_at(self.structure, self.size, float(point.norm()), worst).value

    @property
    def remaining(self) -> float | None:
        """The certificate's gap; else a large multiple of the next step's predicted decrease.

        The prediction is for a step within the trust region, and is not a proof. None while the
        prediction is small only because the region is.
        """
        proved = self.certificate
        if proved is not None:
            return proved.gap
        if self.rounds == 0 or not self.is_exact:
            return None
        if self.structure.is_quadratic:
            return self.promised / max(self.answer, 1e-300)
        if self.damping > FIRST_DAMPING or self.promised < -UNSEEN * self.answer:
            return None
        return PREDICTION_FACTOR * max(self.promised, 0.0) / max(self.answer, 1e-300)

    @property
    def selected(self) -> Tensor:
        """The model with the lowest worst risk; for squared error, the next candidate."""
        known = self.structure.is_quadratic and self.rounds > 0
        return (self.parameters if known else self.best).unsqueeze(0)


def second_order_fits(structure: LinearStructure | None, players: int) -> bool:
    """Return whether the model is linear and its players' second derivatives can be stored."""
    return structure is not None and players * structure.free_numbers**2 <= MAX_CURVATURE


def start_second_order(
    parameters: Tensor,
    structure: LinearStructure,
    *,
    weights: Tensor,
    counts: Tensor,
    playable: Tensor,
    size: RowSize,
) -> SecondOrderState:
    """Nothing is known yet: the first round collects the sums of the initial model."""
    players, numbers = len(counts), structure.free_numbers
    # A common shift of all outputs changes no prediction but increases the ridge penalty.
    start = structure.from_free(structure.to_free(parameters)).to(parameters)
    new = torch.zeros(0, dtype=torch.float64).new_zeros
    return SecondOrderState(
        parameters=start,
        weights=weights,
        best=start,
        structure=structure,
        counts=counts,
        fixed=FixedShares(counts.double() / counts.sum(), playable),
        size=size,
        risks=new(players),
        slopes=new(players, numbers),
        curvature=new(players, structure.curvature_numbers),
        scale=new(numbers),
        cuts=new(0, numbers + 1),
        damping=FIRST_DAMPING,
        promised=0.0,
        upper=float("inf"),
        lower=-float("inf"),
        answer=float("inf"),
        seen=new(players),
        repeats=0,
        rounds=0,
    )


def after_second_order_round(
    state: SecondOrderState, reported: RiskSums, epsilon: float
) -> SecondOrderState:
    """Keep the candidate if the worst risk fell as predicted; then choose the next one."""
    if not torch.equal(reported.counts, state.counts):
        return _after_incomplete_round(state, reported, epsilon)
    tried = _with_bounds(_with_sums(state, reported), epsilon)
    before, now = _worst(state, state.risks, epsilon), _worst(state, tried.risks, epsilon)
    first, was_exact = state.rounds == 0, state.is_exact
    if was_exact and now >= before:
        state = replace(state, cuts=tried.cuts, lower=tried.lower, rounds=tried.rounds, repeats=0)
    else:
        # After an incomplete round, the next absence is no reason to send a candidate again.
        repeats = 0 if was_exact or first else MAX_REPEATS
        state = replace(tried, best=state.parameters, answer=now, repeats=repeats)
    if first:
        return _after_first_round(state, now, epsilon)
    gain = (before - now) / max(state.promised, 1e-300) if was_exact else MIN_SHARE
    return _look_ahead(state, gain, epsilon)


def _after_first_round(state: SecondOrderState, now: float, epsilon: float) -> SecondOrderState:
    nothing = state.structure.risk_at_zero
    if now <= FAR_OFF * nothing:
        return _look_ahead(state, 1.0, epsilon)
    # Rows with extreme outputs have almost no curvature: 0 is the better start.
    zero, unseen = torch.zeros_like(state.parameters), torch.zeros_like(state.seen)
    return replace(state, parameters=zero, promised=now - nothing, seen=unseen)


def _after_incomplete_round(
    state: SecondOrderState, reported: RiskSums, epsilon: float
) -> SecondOrderState:
    """Send the candidate again; if holders stay away, keep it and average the quadratics."""
    if state.is_exact and state.repeats < MAX_REPEATS:
        return replace(state, repeats=state.repeats + 1, rounds=state.rounds + 1)
    tried = _averaged(state, reported)
    before, now = _worst(state, state.risks, epsilon), _worst(state, tried.risks, epsilon)
    kept = replace(tried, best=state.parameters, answer=math.inf)
    if state.rounds == 0:
        return _after_first_round(kept, now, epsilon)
    steady = GOOD_SHARE if state.damping > FIRST_DAMPING else MIN_SHARE
    return _look_ahead(kept, steady if now <= FAR_OFF * before else 0.0, epsilon)


def _worst(state: SecondOrderState, risks: Tensor, epsilon: float) -> float:
    """Return the adversary's maximum over these risks."""
    return highest_mix(state.fixed.mix(risks), state.fixed.floor(epsilon))


def _with_sums(state: SecondOrderState, reported: RiskSums) -> SecondOrderState:
    """Return what is known at the candidate; a missing player keeps its last values."""
    structure, seen = state.structure, reported.counts > 0
    point, ridge = structure.to_free(state.parameters), structure.ridge
    rows = reported.counts[seen].double()
    before = (state.risks, state.slopes, state.curvature)
    risks, slopes, curvature = (known.clone() for known in before)
    risks[seen] = reported.losses[seen] / rows + 0.5 * ridge * point @ point
    slopes[seen] = structure.to_free(reported.gradients[seen]) / rows[:, None] + ridge * point
    curvature[seen] = reported.curvature[seen] / rows[:, None]
    number = state.rounds + 1
    return replace(
        state,
        risks=risks,
        slopes=slopes,
        curvature=curvature,
        seen=number * reported.counts.double(),
        rounds=number,
    )


def _averaged(state: SecondOrderState, reported: RiskSums) -> SecondOrderState:
    """Return averages of what this round's rows say and earlier quadratics, at the candidate.

    If a player's rows all took part in this round, earlier ones add nothing.
    """
    structure, known = state.structure, (state.seen > 0).double()
    step = structure.to_free(state.parameters) - structure.to_free(state.best)
    bent = structure.free_curvature(state.curvature) @ step + structure.ridge * step
    risks = known * (state.risks + state.slopes @ step + 0.5 * bent @ step)
    slopes = known[:, None] * (state.slopes + bent)
    now = _with_sums(state, reported)
    seen = now.seen + torch.where(reported.counts == state.counts, 0.0, state.seen)
    share = now.seen / seen.clamp(min=1.0)
    return replace(
        now,
        risks=torch.lerp(risks, now.risks, share),
        slopes=torch.lerp(slopes, now.slopes, share[:, None]),
        curvature=torch.lerp(state.curvature, now.curvature, share[:, None]),
        seen=seen,
    )


def _with_bounds(tried: SecondOrderState, epsilon: float) -> SecondOrderState:
    """Add the bounds that a round with all rows proves."""
    upper = min(tried.upper, _worst(tried, tried.risks, epsilon))
    tried = replace(tried, upper=upper)
    if not _proves(tried):
        return tried
    point = tried.structure.to_free(tried.parameters)
    worst = float(tried.risks.max())
    errors = errors_at(tried.structure, tried.size, float(point.norm()), worst)
    risks, slopes = tried.fixed.mix(tried.risks), tried.fixed.mix(tried.slopes)
    return _with_cuts(tried, point, risks, slopes, errors=errors, epsilon=epsilon)


def _proves(state: SecondOrderState) -> bool:
    structure = state.structure
    return structure.ridge > 0 and structure.is_convex and math.isfinite(state.size.length)


def _with_cuts(
    state: SecondOrderState,
    point: Tensor,
    risks: Tensor,
    slopes: Tensor,
    *,
    errors: Errors,
    epsilon: float,
) -> SecondOrderState:
    """Add a point's cuts, and the bound that they prove together with earlier ones."""
    ridge = state.structure.ridge
    new = cuts_at(point, risks, slopes, ridge=ridge, errors=errors, worst=state.upper)
    lines = torch.cat([new.constants[:, None], new.slopes], dim=1)
    # With a floor on the weights, only the cuts of a single point prove a bound.
    kept = 0 if epsilon else (MAX_CUT_ROUNDS - 1) * len(lines)
    cuts = torch.cat([lines, state.cuts[:kept]])
    bound = lower_bound(Cuts(cuts[:, 0], cuts[:, 1:]), ridge, state.fixed.floor(epsilon))
    # Losses are not negative.
    return replace(state, cuts=cuts, lower=max(state.lower, bound, 0.0))


def _look_ahead(state: SecondOrderState, gain: float, epsilon: float) -> SecondOrderState:
    """Choose the next candidate from the best model, in a trust region adapted to the gain."""
    factor = (
        1.0 / DAMPING_FACTOR if gain >= GOOD_SHARE else 1.0 if gain >= MIN_SHARE else DAMPING_FACTOR
    )
    damping = min(max(state.damping * factor, MIN_DAMPING), MAX_DAMPING)
    structure = state.structure
    curvatures = structure.free_curvature(state.curvature)
    curvatures.diagonal(dim1=1, dim2=2).add_(structure.ridge)
    diagonals = curvatures.diagonal(dim1=1, dim2=2)
    scale = torch.maximum(state.scale, (state.weights[:, None] * diagonals).sum(dim=0))
    mix, floor = state.fixed.mix, state.fixed.floor(epsilon)
    functions = Quadratics(mix(state.risks), mix(state.slopes), mix(curvatures))
    chosen = state.fixed.chosen(state.weights)
    widest = diagonals.amax(dim=0)
    least = MIN_CURVATURE * torch.where(widest > 0, widest, widest.max())
    region = (0.0 if structure.is_quadratic else damping) * scale + least
    lowest = minimise_max(functions, region, chosen, floor)
    least_value = max(state.lower, 0.0) if state.is_exact else 0.0
    while lowest.value < least_value and damping < MAX_DAMPING and not structure.is_quadratic:
        # No model is that good: the prediction is beyond the range of the quadratics.
        damping *= DAMPING_FACTOR
        lowest = minimise_max(functions, damping * scale + least, chosen, floor)
    point = structure.to_free(state.best) + lowest.step
    parameters = structure.from_free(point).to(state.best)
    state = replace(
        state,
        parameters=parameters,
        weights=state.fixed.weights(lowest.weights),
        scale=scale,
        damping=damping,
        promised=_worst(state, state.risks, epsilon) - lowest.value,
    )
    if structure.is_quadratic and state.is_exact:
        return _with_known(state, functions, region, epsilon)
    return state


def _with_known(
    state: SecondOrderState, functions: Quadratics, region: Tensor, epsilon: float
) -> SecondOrderState:
    """Add what quadratic risks determine about the next model before it is evaluated.

    What a further step from there would gain is due to rounding, and is 0 if it is as small.
    """
    best, point = (state.structure.to_free(own) for own in (state.best, state.parameters))
    step, floor = point - best, state.fixed.floor(epsilon)
    there = functions.moved(step)
    answer = highest_mix(there.values, floor)
    again = minimise_max(there, region, state.fixed.chosen(state.weights), floor)
    gain = answer - again.value
    promised = gain if gain > UNSEEN * _worst(state, state.risks, epsilon) else 0.0
    state = replace(state, answer=answer, upper=min(state.upper, answer), promised=promised)
    if not _proves(state):
        return state
    worst = float(functions.values.max())
    errors = errors_of_quadratics(
        errors_at(state.structure, state.size, float(best.norm()), worst),
        state.size,
        float(step.norm()),
        len(step),
    )
    return _with_cuts(state, point, there.values, there.slopes, errors=errors, epsilon=epsilon)
