"""The next candidate of the server for linear models: the lowest point of quadratic risks.

In the first phase it is the minimum of the highest risk. The second phase is about near-minimax:
the lowest mean risk m among models whose worst risk W is at most a limit c.

With a multiplier s >= 0 of the limit,

    m + s (W - c)  =  (1 + s) (k m + (1 - k) W) - s c,    k = 1 / (1 + s),

so the minimum over models is that of the game in which every player keeps the part k of its share
(``simplex.FixedShares``): one more number to find, and nothing else changes. Whatever s is, that
minimum is below the mean risk of every model within the limit (weak duality), so a lower bound of
the game bounds the mean. W is the adversary's maximum: players that may not be chosen, and a floor
on the weights, are part of it.

So a candidate is the lowest point of that game, with the k for which the highest risk there is the
limit. The larger k is, the higher that risk.

| symbol | name                    |
|--------|-------------------------|
| c      | Allowed.limit           |
| k      | Allowed.keep_share      |
| s      | multiplier_of           |
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedminmax.core.solvers.cone import lowest_in_cone, minimise_max_in_cone
from fedminmax.core.solvers.max_of_quadratics import (
    LowestPoint,
    Quadratics,
    centred,
    from_centred,
    highest_mix,
    in_few_directions,
    lowest_mix,
    minimise_max,
    minimise_max_exactly,
)
from fedminmax.core.solvers.simplex import FixedShares, project_on_simplex
from fedminmax.methods.shared.second_order_state import NOTHING_LEFT, Allowed, SecondOrderState

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


MAX_DAMPING, DAMPING_FACTOR = 1e12, 10.0
# Added to each curvature, relative to its column, which may have any unit.
MIN_CURVATURE = 1e-12
# Of 1 - k: at the least, the mean alone counts; at the most, the highest risk.
LEAST_FREE, MOST_FREE = 1e-9, 1.0 - 1e-6
MAX_SEARCH = 60
# Of mixtures of two curvatures: steps with closer ones are alike, and nothing is gained by turns.
SAME_SHARE, MAX_TURNS = 0.05, 3


@dataclass(frozen=True, eq=False)
class Ahead:
    """A step from the best model, and what the quadratics predict of it.

    ``value`` is the merit there, the trust region's damping included, and ``least`` a value that no
    step brings the objective below (minus infinity if it is not asked for). ``chosen`` are the
    adversary's weights in this ``game``.
    """

    step: Tensor
    game: FixedShares
    chosen: Tensor
    value: float
    least: float
    damping: float
    scale: Tensor


def quadratics(state: SecondOrderState) -> Quadratics:
    """Return the players' risks as functions of the step from the best model."""
    curvatures = state.structure.free_curvature(state.curvature)
    curvatures.diagonal(dim1=1, dim2=2).add_(state.structure.ridge)
    return Quadratics(state.risks, state.slopes, curvatures)


def mixed(state: SecondOrderState, game: FixedShares, own: Quadratics) -> Quadratics:
    """Return the functions that the adversary chooses from, given the players' own."""
    # The weights of a mixture add up to 1, so a curvature that all share stays the same.
    curvatures = own.curvatures if state.structure.coded else game.mix(own.curvatures)
    return Quadratics(game.mix(own.values), game.mix(own.slopes), curvatures)


def step_ahead(state: SecondOrderState, damping: float, min_weight: float) -> Ahead:
    """Choose a step in a trust region of this damping, or a smaller one."""
    structure, floor = state.structure, state.fixed.floor(min_weight)
    first = _first_game(state, floor)
    own = centred(structure, _bent(state, first.share), state.centre)
    diagonals = own.curvatures.diagonal(dim1=1, dim2=2)
    scale = torch.maximum(state.scale, (state.weights[:, None] * diagonals).sum(dim=0))
    least = MIN_CURVATURE * _positive(diagonals.amax(dim=0))
    lower = state.allowed.lower if state.allowed.is_sought else state.lower
    least_value = max(lower, 0.0) if state.is_exact else 0.0
    while True:
        damped = least if structure.is_quadratic else damping * scale + least
        found, functions = _found(state, own, first, damped, floor)
        if structure.is_quadratic or found.value >= least_value or damping >= MAX_DAMPING:
            break
        # No model is that good: the prediction is beyond the range of the quadratics.
        damping *= DAMPING_FACTOR
    known = state.allowed.mean if state.allowed.is_sought else merit(state, state.risks, min_weight)
    # It costs a factorisation. What is left to gain is asked for if nothing else proves it, or if
    # it is next to nothing; it is no less than the gain of this step.
    asked = not state.proves or known - found.value <= NOTHING_LEFT * abs(known)
    return Ahead(
        from_centred(structure, found.point.step, state.centre),
        found.game,
        found.point.weights,
        value=found.value,
        least=_least_value(state, found, functions, least, floor) if asked else -math.inf,
        damping=damping,
        scale=scale,
    )


@dataclass(frozen=True, eq=False)
class _Start:
    """The game to begin with, the adversary's weights in it, and the mixture of curvatures."""

    game: FixedShares
    weights: Tensor
    share: float


def _first_game(state: SecondOrderState, floor: float) -> _Start:
    game = state.fixed
    if not state.allowed.is_sought:
        return _Start(game, game.chosen(state.weights), 0.0)
    game = replace(game, keep_share=state.allowed.keep_share)
    start = project_on_simplex(game.chosen(state.weights), floor=floor)
    return _Start(game, start, _natural_share(state, game.weights(start)))


def _bent(state: SecondOrderState, share: float) -> Quadratics:
    """Return the players' quadratics with this mixture of the two curvatures that are known."""
    if not share:
        return quadratics(state)
    packed = torch.lerp(state.curvature, state.natural_curvature, share)
    return quadratics(replace(state, curvature=packed))


def _found(
    state: SecondOrderState, own: Quadratics, first: _Start, damping: Tensor, floor: float
) -> tuple["_Found", Quadratics]:
    """Return the lowest point of the game that is to be played, and the players' functions in it.

    In the second phase it is the game whose highest risk is the limit there.
    """
    found = _solved(state, own, damping, floor, first.game, first.weights)
    share, turns = first.share, 1
    while turns < MAX_TURNS and state.allowed.is_sought:
        wanted = _natural_share(state, found.game.weights(found.point.weights))
        if abs(wanted - share) <= SAME_SHARE:
            break
        share, turns, own = wanted, turns + 1, _bent(state, wanted)
        found = _solved(state, own, damping, floor, found.game, found.point.weights)
    return found, own


def _natural_share(state: SecondOrderState, weights: Tensor) -> float:
    """Return which mixture of the two curvatures that are known is nearest to that of weights.

    They are the curvature of the last weights (0) and that of the natural shares (1), where all
    players have one curvature.
    """
    if not state.structure.coded:
        return 0.0
    away = state.fixed.shares - state.curved
    share = float((weights - state.curved) @ away) / max(float(away @ away), 1e-300)
    return min(max(share, 0.0), 1.0)


def _solved(
    state: SecondOrderState,
    own: Quadratics,
    damping: Tensor,
    floor: float,
    game: FixedShares,
    start: Tensor,
) -> "_Found":
    """Return the lowest point of this game; in the second phase, of the one that is looked for."""
    if not state.structure.coded or state.structure.has_cone:
        return _Search(state, own, damping, floor).found(game, start)
    few, directions = in_few_directions(own, damping)
    found = _Search(state, few, torch.zeros(len(few.slopes[0])).double(), floor).found(game, start)
    return replace(found, point=replace(found.point, step=directions @ found.point.step))


@dataclass(frozen=True, eq=False)
class _Found:
    """The lowest point of a game, and there the highest risk and the merit, damping included."""

    game: FixedShares
    point: LowestPoint
    worst: float
    value: float


@dataclass(frozen=True, eq=False)
class _Search:
    """The players' quadratics, the damping of each parameter, and the adversary's floor."""

    state: SecondOrderState
    own: Quadratics
    damping: Tensor
    floor: float

    def found(self, game: FixedShares, start: Tensor) -> _Found:
        """Begin with a game and the adversary's weights in it."""
        sought = self.state.allowed.is_sought
        return self.within_limit(game, start) if sought else self.lowest(game, start)

    def lowest(self, game: FixedShares, start: Tensor) -> _Found:
        """Minimise a game's maximum over the steps that the model may take."""
        state, structure = self.state, self.state.structure
        functions = mixed(state, game, self.own)
        if structure.is_quadratic:
            point = minimise_max_exactly(functions, self.damping, start, self.floor)
        elif structure.has_cone:
            best = structure.to_free(state.best)
            point = minimise_max_in_cone(functions, self.damping, best, structure.cone, self.floor)
        else:
            point = minimise_max(functions, self.damping, start, self.floor)
        if not state.allowed.is_sought:
            return _Found(game, point, point.value, point.value)
        risks = self.own.moved(point.step).values
        bent = 0.0 if structure.is_quadratic else 0.5 * float(self.damping @ point.step.square())
        worst = highest_mix(state.fixed.mix(risks), self.floor) + bent
        mean = float(state.fixed.shares @ risks) + bent
        return _Found(game, point, worst, merit_of(state, mean, worst, game.keep_share))

    def within_limit(self, game: FixedShares, start: Tensor) -> _Found:
        """Find the part that every player keeps with which the highest risk is the limit.

        It falls as the rest 1 - k grows: a search by secants, safeguarded (Illinois).
        """
        allowed, fixed = self.state.allowed, self.state.fixed
        ends: dict[bool, tuple[float, float]] = {}
        found, last = self.lowest(game, start), None
        for _ in range(MAX_SEARCH):
            free, miss = 1.0 - found.game.keep_share, found.worst - allowed.target
            is_above = miss > 0.0
            at_end = free >= MOST_FREE if is_above else free <= LEAST_FREE
            if -allowed.margin <= miss <= 0.0 or at_end:
                break
            ends[is_above] = (free, miss)
            other = ends.get(not is_above)
            if other is None:
                free = MOST_FREE if is_above else LEAST_FREE
            else:
                if last is is_above:
                    other = ends[not is_above] = (other[0], 0.5 * other[1])
                free = (free * other[1] - other[0] * miss) / (other[1] - miss)
            last = is_above
            found = self.lowest(replace(fixed, keep_share=1.0 - free), found.point.weights)
        return found


def _least_value(
    state: SecondOrderState, found: _Found, own: Quadratics, least: Tensor, floor: float
) -> float:
    """Return a value that no step brings the objective below."""
    structure, weights = state.structure, found.point.weights
    functions = mixed(state, found.game, own)
    if structure.has_cone:
        best = structure.to_free(state.best)
        value = lowest_in_cone(functions, least, best, structure.cone, floor)
    elif structure.is_quadratic:
        value = lowest_mix(functions.moved(found.point.step), least, weights)
    else:
        value = lowest_mix(functions, least, weights)
    # Candidates aim a little below the limit; that margin is not theirs to gain, nor may the mean
    # of a model that uses some of it look lower than that of any step.
    worst = max(found.worst, state.allowed.worst) if state.allowed.is_sought else 0.0
    return mean_from_game(found.game, value, worst) if state.allowed.is_sought else value


def _positive(widest: Tensor) -> Tensor:
    """Return the largest curvature of each parameter; that of all where nothing bends."""
    most = float(widest.max())
    return torch.where(widest > 0, widest, most if most > 0 else 1.0)
