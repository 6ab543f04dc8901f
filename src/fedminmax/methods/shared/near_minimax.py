"""Near-minimax: the lowest mean risk m among models whose worst risk W is at most a limit c.

With a multiplier s >= 0 of the limit,

    m + s (W - c)  =  (1 + s) (k m + (1 - k) W) - s c,    k = 1 / (1 + s),

so the minimum over models is that of the game in which every player keeps the part k of its share
(``simplex.FixedShares``): one more number to find, and nothing else changes. Whatever s is, that
minimum is below the mean risk of every model within the limit (weak duality), so a lower bound of
the game bounds the mean. W is the adversary's maximum: players that may not be chosen, and a floor
on the weights, are part of it.

| symbol | name                    |
|--------|-------------------------|
| c      | Allowed.limit           |
| k      | Allowed.keep_share      |
| s      | multiplier_of           |
"""

import math
from dataclasses import replace

from torch import Tensor

from fedminmax.core.solvers.max_of_quadratics import highest_mix
from fedminmax.core.solvers.simplex import FixedShares
from fedminmax.methods.shared.second_order_state import Allowed, SecondOrderState

# The second phase begins when the worst risk is within this part of the tolerance, and aims below
# the limit by this part of it.
NEAR, MARGIN = 0.25, 1e-4
FIRST_KEEP_SHARE = 0.5
# Of a sum of three numbers, relative to them.
ROUNDINGS = 2.0**-50


def worst_risk(state: SecondOrderState, risks: Tensor, min_weight: float) -> float:
    """Return W, the adversary's maximum over these risks."""
    return highest_mix(state.fixed.mix(risks), state.fixed.floor(min_weight))


def multiplier_of(keep_share: float) -> float:
    """Return s, given k."""
    return (1.0 - keep_share) / keep_share


def merit(state: SecondOrderState, risks: Tensor, min_weight: float) -> float:
    """Return what candidates with these risks are compared by (see ``merit_of``)."""
    worst = worst_risk(state, risks, min_weight)
    return merit_of(state, float(state.fixed.shares @ risks), worst, state.allowed.keep_share)


def merit_of(state: SecondOrderState, mean: float, worst: float, keep_share: float) -> float:
    """Return what candidates are compared by: W, or m and an exact penalty for W above the limit.

    The penalty's rate must be above s; one far above it refuses steps that lead to the optimum.
    """
    if not state.allowed.is_sought:
        return worst
    rate = 2.0 * multiplier_of(keep_share) + 1.0
    return mean + rate * max(0.0, worst - state.allowed.limit)


def begun(
    state: SecondOrderState, risks: Tensor, min_weight: float, limit: float | None = None
) -> SecondOrderState:
    """Begin the second phase; ``risks`` are those of the selected model.

    The limit is that of the tolerance, unless one is given.
    """
    tolerance, left = state.allowed.tolerance, state.remaining or 0.0
    least, model = max((1.0 - left) * state.answer, state.lower), state.selected[0]
    error = state.error_at(state.structure.to_free(model)).value if state.proves else 0.0
    worst = worst_risk(state, risks, min_weight) + error
    # Masked sums of few rows can be so rough that the model itself is not proved to be within it.
    allowed = (1.0 + tolerance) * least if limit is None else limit
    limit, margin = max(allowed, worst), MARGIN * tolerance * least
    target = limit - margin - 2.0 * error
    near = Allowed(model, risks, tolerance, limit, target, margin, keep_share=FIRST_KEEP_SHARE)
    state = replace(state, allowed=near, left=math.inf)
    return with_allowed(state, model, risks, min_weight)


def with_allowed(
    state: SecondOrderState, model: Tensor, risks: Tensor, min_weight: float
) -> SecondOrderState:
    """Keep a model with these risks if it is within the limit, and its mean is the lowest."""
    near = state.allowed
    if not near.is_sought:
        return state
    error = state.error_at(state.structure.to_free(model)).value if state.proves else 0.0
    worst = worst_risk(state, risks, min_weight) + error
    mean = float(state.fixed.shares @ risks) + error
    if worst > near.limit or mean >= near.mean:
        return state
    return replace(state, allowed=replace(near, model=model, worst=worst, mean=mean, risks=risks))


def with_mean_bound(
    state: SecondOrderState, game: FixedShares, min_weight: float
) -> SecondOrderState:
    """Add which mean risk no model within the limit is below."""
    near = state.allowed
    if not state.proves:
        return state
    # Models whose mean is no lower than that of the one known need not be considered.
    bound = state.bound_of(game, near.mean, state.fixed.floor(min_weight))
    size = bound + near.limit
    proved = mean_from_game(game, bound - ROUNDINGS * size, near.limit)
    return replace(state, allowed=replace(near, lower=max(near.lower, proved)))


def mean_from_game(game: FixedShares, value: float, limit: float) -> float:
    """Return which mean risk no model within the limit is below, if this is true of the game."""
    times = multiplier_of(game.keep_share)
    return (1.0 + times) * value - times * limit
