"""The server for linear models: from sums with curvature to the next candidate model.

With loss, gradient and curvature sums the server has a quadratic model of every player's risk (a
player is a group, or a site) and goes to the minimum of their maximum: the weights are those that
will be optimal after the step, not those that were optimal before it. Players that may not be
chosen keep their share (see ``simplex``). A trust region in the manner of Levenberg and
Marquardt (More: The Levenberg-Marquardt algorithm, 1978) makes the steps safe for every data set
with the same settings: a failed step costs one round, never the run. For squared error the
quadratic model is exact: one round of sums is the whole problem.

Effects of an additive model that may only go up are linear inequalities, which every candidate
keeps to (see ``core.solvers.cone``).

With a tolerance, a second phase follows: the lowest mean risk among models whose worst risk is
within the tolerance of the lowest possible (see ``second_order_step``).

With cross-entropy or squared error and a ridge, the sums also prove a lower bound (see
``core.certificate``).

Risks of two rounds can be compared only if both are on all rows. If sites are missing, the same
candidate is sent again, a few times. If they stay away, every candidate is kept, and the quadratics
are averages over rounds, each moved to the newest candidate; round t has weight t, so what was
measured far away fades. The averages of rounds with changing sites approach the risks on all
rows.

| symbol         | name                            |
|----------------|---------------------------------|
| theta          | state.parameters, the next candidate |
| best theta     | state.best                      |
| mu             | state.weights                   |
| r, g, H        | state.risks, slopes, curvature  |
| m              | state.structure.ridge           |
| epsilon        | min_weight                         |
"""

import math
from dataclasses import replace

import torch

from fedminmax.core.certificate import (
    Measured,
    Tangents,
    check_same_rows,
    errors_at,
    masked_errors,
    steepest_change,
    tangents_at,
)
from fedminmax.core.solvers.max_of_quadratics import centre_of
from fedminmax.methods.shared.replies import MAX_REPEATS, RiskSums
from fedminmax.methods.shared.second_order_state import (
    FIRST_DAMPING,
    NOTHING_LEFT,
    Offsets,
    SecondOrderState,
    Trial,
    new_trial,
)
from fedminmax.methods.shared.second_order_step import (
    DAMPING_FACTOR,
    MAX_DAMPING,
    NEAR,
    begun,
    merit,
    mixed,
    quadratics,
    step_ahead,
    with_allowed,
    with_mean_bound,
    worst_risk,
)

# A step is good if the worst risk falls by half of the predicted decrease, and fails below a tenth.
GOOD_SHARE, MIN_SHARE = 0.5, 0.1
# The curvature of coded records is asked for again if a step gained less than this share of the
# predicted decrease, or weights differ by more than this from those that it was taken with.
ACCURATE_SHARE, MAX_CHANGE_OF_WEIGHTS = 0.9, 0.1
MIN_DAMPING = 1e-12
MAX_TANGENT_ROUNDS = 3
# Smaller gains, relative to the risk before the step, are rounding.
UNSEEN = 1e-13
# Residuals of a perfect fit, in units of the last place of targets.
FIT_DIGITS = 100.0
# A start this many times as bad as a model of zeros is replaced by zeros; that costs a round.
FAR_OFF = 1.5


def after_second_order_round(
    state: SecondOrderState, reported: RiskSums, min_weight: float
) -> SecondOrderState:
    """Keep the candidate if the objective fell as predicted; then choose the next one."""
    losses = reported.losses + state.offsets.values * reported.counts
    reported = replace(reported, losses=losses)
    after = _after_round(state, reported, min_weight)
    after = replace(after, is_settled=state.share_left <= NOTHING_LEFT)
    if after.is_halfway:
        after = _second_phase(after, min_weight)
    # A certificate refuses bounds that contradict each other.
    _ = after.certificate
    return after


def _after_round(
    state: SecondOrderState, reported: RiskSums, min_weight: float
) -> SecondOrderState:
    if not torch.equal(reported.counts, state.counts):
        return _after_incomplete_round(state, reported, min_weight)
    tried = _with_sums(state, reported)
    _check_same_rows(state, tried)
    tried = _with_bounds(tried, min_weight)
    before, now = (merit(state, own.risks, min_weight) for own in (state, tried))
    first, was_exact = state.rounds == 0, state.is_exact
    if was_exact and now >= before:
        state = replace(
            state, tangents=tried.tangents, lower=tried.lower, rounds=tried.rounds, repeats=0
        )
        if state.structure.coded:
            # Else the same step would fail until the trust region is small: it was chosen with the
            # curvature of other weights than those that it leads to.
            state = replace(state, curvature=tried.curvature, curved=tried.curved)
    else:
        # After an incomplete round, the next absence is no reason to send a candidate again.
        repeats = 0 if was_exact or first else MAX_REPEATS
        answer = worst_risk(state, tried.risks, min_weight)
        state = replace(tried, best=state.parameters, answer=answer, repeats=repeats, left=math.inf)
        state = with_allowed(state, state.best, state.risks, min_weight)
    if first:
        return _after_first_round(state, now, min_weight)
    gain = (before - now) / max(state.promised, 1e-300) if was_exact else MIN_SHARE
    # For squared error the next candidate is the answer, and is not known yet.
    halfway = state.is_halfway and not state.structure.is_quadratic
    proved = state.certificate if halfway else None
    if proved is not None and proved.gap <= NEAR * state.allowed.tolerance:
        return _look_ahead(begun(state, state.risks, min_weight), gain, min_weight)
    return _look_ahead(state, gain, min_weight)


def with_offsets(state: SecondOrderState, offsets: Offsets) -> SecondOrderState:
    """Return the state with these offsets in what is known of the players, for ``retargeted``."""
    added, known = offsets.values - state.offsets.values, state.tangents
    tangents = replace(known, constants=known.constants + added)
    return replace(state, offsets=offsets, risks=state.risks + added, tangents=tangents)


def retargeted(state: SecondOrderState, keep_share: float) -> SecondOrderState:
    """Return the state with another objective; what is known of the players serves it as well."""
    fixed, chosen = replace(state.fixed, keep_share=keep_share), state.fixed.chosen(state.weights)
    chosen, answer = chosen.clamp(min=0.0), float(fixed.mix(state.risks).max())
    state = replace(
        state,
        fixed=fixed,
        weights=fixed.weights(chosen / chosen.sum()),
        answer=answer,
        upper=answer,
        lower=-math.inf,
        left=math.inf,
    )
    return _look_ahead(_with_lower(state, 0.0), GOOD_SHARE, 0.0)


def _after_first_round(state: SecondOrderState, now: float, min_weight: float) -> SecondOrderState:
    nothing = state.structure.risk_at_zero
    if now <= FAR_OFF * nothing:
        return _look_ahead(state, 1.0, min_weight)
    # Rows with extreme outputs have almost no curvature: 0 is the better start.
    zero, unseen = torch.zeros_like(state.parameters), torch.zeros_like(state.seen)
    gain = now - nothing
    return replace(state, parameters=zero, promised=gain, left=gain, seen=unseen)


def _after_incomplete_round(
    state: SecondOrderState, reported: RiskSums, min_weight: float
) -> SecondOrderState:
    """Send the candidate again; if sites stay away, keep it and average the quadratics."""
    # The second phase is about one risk within a limit: it waits until all sites are back.
    if state.is_exact and (state.repeats < MAX_REPEATS or state.allowed.is_sought):
        return replace(state, repeats=state.repeats + 1, rounds=state.rounds + 1)
    tried = _averaged(state, reported)
    tried = replace(tried, trial=_tried_out(state, tried, reported))
    before, now = (
        worst_risk(state, state.risks, min_weight),
        worst_risk(state, tried.risks, min_weight),
    )
    kept = replace(tried, best=state.parameters, answer=math.inf, left=math.inf)
    if state.rounds == 0:
        return _after_first_round(kept, now, min_weight)
    steady = GOOD_SHARE if state.damping > FIRST_DAMPING else MIN_SHARE
    return _look_ahead(kept, steady if now <= FAR_OFF * before else 0.0, min_weight)


def _tried_out(state: SecondOrderState, tried: SecondOrderState, reported: RiskSums) -> Trial:
    """Return the trial after a round without all sites.

    The model that candidates must beat is the best one so far if it was measured on all rows, else
    the start, or zeros where these are known to be better. Quadratic risks tell its risk on all
    rows that were seen.
    """
    included = state.fixed.included & (reported.counts > 0)
    if state.rounds == 0:
        risks = reported.losses[included] / reported.counts[included]
        risk, nothing = float(risks.max()) if len(risks) else math.inf, state.structure.risk_at_zero
        start = torch.zeros_like(state.parameters) if nothing < risk else state.parameters
        return new_trial(start, len(state.counts), min(risk, nothing))
    trial = state.trial
    if state.is_exact:
        point = state.structure.to_free(state.best)
        risks = state.risks - 0.5 * state.structure.ridge * point @ point
        trial = new_trial(state.best, len(risks), float(risks[state.fixed.included].max()))
    elif state.structure.is_quadratic:
        point, now = (state.structure.to_free(own) for own in (trial.kept, tried.parameters))
        risks = quadratics(tried).moved(point - now).values
        risks = risks - 0.5 * state.structure.ridge * point @ point
        trial = replace(trial, risk=float(risks[state.fixed.included].max()))
    number = state.rounds + 1
    return trial.with_round(number, state.parameters, reported.losses, reported.counts)


def _with_sums(state: SecondOrderState, reported: RiskSums) -> SecondOrderState:
    """Return what is known at the candidate; a missing player keeps its last values."""
    structure, seen = state.structure, reported.counts > 0
    point, ridge = structure.to_free(state.parameters), structure.ridge
    rows = reported.counts[seen].double()
    before = (state.risks, state.slopes, state.curvature)
    risks, slopes, curvature = (known.clone() for known in before)
    risks[seen] = reported.losses[seen] / rows + 0.5 * ridge * point @ point
    slopes[seen] = structure.to_free(reported.gradients[seen]) / rows[:, None] + ridge * point
    curved, first = state.curved, structure.coded and not bool(state.curved.any())
    if structure.coded and reported.curvature.shape[1]:
        curvature = reported.curvature / (state.curvature_weights @ reported.counts.double())
        curved = state.weights
    elif not structure.coded:
        curvature[seen] = reported.curvature[seen] / rows[:, None]
    number = state.rounds + 1
    return replace(
        state,
        # Fixed once the trust region has a scale, which is in coordinates around it.
        centre=state.centre
        if bool(state.scale.any())
        else centre_of(structure, reported.curvature),
        risks=risks,
        slopes=slopes,
        curvature=curvature,
        curved=curved,
        natural_curvature=curvature if first else state.natural_curvature,
        size=replace(
            state.size, masked=masked_errors(structure, reported.rounding, reported.counts)
        ),
        seen=number * reported.counts.double(),
        rounds=number,
    )


def _averaged(state: SecondOrderState, reported: RiskSums) -> SecondOrderState:
    """Return averages of what this round's rows say and earlier quadratics, at the candidate.

    If a player's rows all took part in this round, earlier ones add nothing.
    """
    structure, known = state.structure, (state.seen > 0).double()
    step = structure.to_free(state.parameters) - structure.to_free(state.best)
    earlier = quadratics(state).moved(step)
    now = _with_sums(state, reported)
    seen = now.seen + torch.where(reported.counts == state.counts, 0.0, state.seen)
    share = now.seen / seen.clamp(min=1.0)
    return replace(
        now,
        risks=torch.lerp(known * earlier.values, now.risks, share),
        slopes=torch.lerp(known[:, None] * earlier.slopes, now.slopes, share[:, None]),
        curvature=torch.lerp(
            state.curvature,
            now.curvature,
            share.mean().reshape(1, 1) if structure.coded else share[:, None],
        ),
        seen=seen,
    )


def _with_bounds(tried: SecondOrderState, min_weight: float) -> SecondOrderState:
    """Add the bounds that a round with all rows proves."""
    upper = min(tried.upper, worst_risk(tried, tried.risks, min_weight))
    tried = replace(tried, upper=upper)
    if not tried.proves:
        return tried
    point = tried.structure.to_free(tried.parameters)
    worst = float(tried.risks.max())
    # Parameters with a common shift of all outputs are longer than the point.
    length = float(tried.parameters.double().norm())
    errors = errors_at(tried.structure, tried.size, length, worst)
    new = tangents_at(point, tried.risks, tried.slopes, ridge=tried.structure.ridge, errors=errors)
    return _with_tangents(tried, new, min_weight)


def _check_same_rows(state: SecondOrderState, tried: SecondOrderState) -> None:
    """Refuse sums that contradict those of earlier rounds: their rows are not the same."""
    if not state.proves or not state.is_exact:
        return
    structure, mix = state.structure, state.fixed.mix
    points = (structure.to_free(own) for own in (state.best, tried.parameters))
    before, now = (
        Measured(
            point,
            mix(own.risks) - 0.5 * structure.ridge * point @ point,
            mix(own.slopes) - structure.ridge * point,
        )
        for own, point in zip((state, tried), points, strict=True)
    )
    cuts = state.tangents.mixed(state.fixed).cuts(state.upper, structure.ridge)
    steepest = steepest_change(structure, state.size)
    masked = max(state.size.masked, tried.size.masked, key=lambda own: own.slope)
    check_same_rows(before, now, cuts, steepest=steepest, masked=masked)


def _with_tangents(state: SecondOrderState, new: Tangents, min_weight: float) -> SecondOrderState:
    """Add a point's tangents, and the bound that they prove together with earlier ones."""
    # With a floor on the weights, only the cuts of a single point prove a bound.
    tangents = new.after(state.tangents, 1 if min_weight else MAX_TANGENT_ROUNDS)
    return _with_lower(replace(state, tangents=tangents), min_weight)


def _with_lower(state: SecondOrderState, min_weight: float) -> SecondOrderState:
    bound = state.bound_of(state.fixed, state.upper, state.fixed.floor(min_weight))
    return replace(state, lower=max(state.lower, bound))


def _look_ahead(state: SecondOrderState, gain: float, min_weight: float) -> SecondOrderState:
    """Choose the next candidate from the best model, in a trust region adapted to the gain."""
    factor = (
        1.0 / DAMPING_FACTOR if gain >= GOOD_SHARE else 1.0 if gain >= MIN_SHARE else DAMPING_FACTOR
    )
    least = FIRST_DAMPING if gain < MIN_SHARE else MIN_DAMPING
    damping = min(max(state.damping * factor, least), MAX_DAMPING)
    ahead, structure = step_ahead(state, damping, min_weight), state.structure
    weights, near = ahead.game.weights(ahead.chosen), state.allowed
    near = replace(near, keep_share=ahead.game.keep_share) if near.is_sought else near
    state = replace(state, allowed=near)
    now = merit(state, state.risks, min_weight)
    state = replace(
        state,
        parameters=structure.from_free(structure.to_free(state.best) + ahead.step).to(state.best),
        weights=weights,
        wants_curvature=gain < ACCURATE_SHARE
        or float((weights - state.curved).abs().sum()) > MAX_CHANGE_OF_WEIGHTS,
        scale=ahead.scale,
        damping=ahead.damping,
        promised=now - ahead.value,
        # A candidate that failed changes nothing about what other weights proved of the best.
        left=min(state.left, (near.mean if near.is_sought else now) - ahead.least),
    )
    if structure.is_quadratic and state.is_exact:
        state = _with_known(state, ahead.least, min_weight)
    return with_mean_bound(state, ahead.game, min_weight) if near.is_sought else state


def _with_known(state: SecondOrderState, lower: float, min_weight: float) -> SecondOrderState:
    """Add what quadratic risks determine about the next model before it is evaluated.

    Its distance from ``lower``, which no model is below, is due to rounding or to a step that the
    solver missed.
    """
    best, point = (state.structure.to_free(own) for own in (state.best, state.parameters))
    step, plain = point - best, quadratics(state)
    functions, there = mixed(state, state.fixed, plain), plain.moved(step)
    answer = worst_risk(state, there.values, min_weight)
    state = with_allowed(state, state.parameters, there.values, min_weight)
    # A gain too small to be seen beside the numbers that were added is an uncertainty, and not 0.
    # With residuals as small as rounding errors of the targets, there is nothing left to gain.
    added = float((functions.curvatures.abs() @ step.abs() @ step.abs()).max())
    unseen = UNSEEN * max(worst_risk(state, state.risks, min_weight), added)
    digits = FIT_DIGITS * torch.finfo(state.parameters.dtype).eps
    targets = float(functions.moved(-best).values.abs().max())
    risk = state.allowed.mean if state.allowed.is_sought else answer
    left = 0.0 if risk <= digits**2 * targets else max(risk - lower, unseen)
    state = replace(state, answer=answer, upper=min(state.upper, answer), left=left)
    if not state.proves:
        return state
    ridge, errors = state.structure.ridge, state.error_at(point)
    new = tangents_at(point, there.values, there.slopes, ridge=ridge, errors=errors)
    return _with_tangents(state, new, min_weight)


def _second_phase(state: SecondOrderState, min_weight: float) -> SecondOrderState:
    """Look for the lowest mean once the worst risk is close enough to its minimum."""
    left = state.remaining
    if left is None or left > NEAR * state.allowed.tolerance:
        return state
    return within_limit(state, state.allowed.tolerance, None, min_weight)


def within_limit(
    state: SecondOrderState, tolerance: float, limit: float | None, min_weight: float
) -> SecondOrderState:
    """Begin the second phase with this limit; None is that of the tolerance."""
    state = replace(state, allowed=replace(state.allowed, tolerance=tolerance))
    best, point = (state.structure.to_free(own) for own in (state.best, state.selected[0]))
    risks = quadratics(state).moved(point - best).values
    return _look_ahead(begun(state, risks, min_weight, limit), MIN_SHARE, min_weight)
